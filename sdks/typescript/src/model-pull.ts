/** A model on its way to a node's disk, as an asynchronous iterable of its progress. */

import type { Connection } from "./connection.js";
import { UnexpectedError } from "./errors.js";
import type {
  PullModelRequest,
  PullModelResponse,
} from "./generated/kakeya/v1/model_service_pb.js";
import type { PulledModel, PullProgress } from "./generated/values.js";
import { pulledModel, pullProgress } from "./generated/wire.js";
import { MessageStream, ServerStream, type MessageSource } from "./streams.js";

/**
 * How a pull stands: `for await (const progress of client.fleet.pullModel("smollm2"))`.
 *
 * Iterated once, or waited for. Who leaves it leaves the pull alone, which goes on; to pull the
 * model again is to hear of it again.
 */
export class ModelPull extends ServerStream<PullModelResponse, PullProgress> {
  readonly #connection: Connection;
  readonly #request: PullModelRequest;
  readonly #signal: AbortSignal | undefined;
  #pulled: PulledModel | null = null;

  constructor(connection: Connection, request: PullModelRequest, signal?: AbortSignal) {
    super();
    this.#connection = connection;
    this.#request = request;
    this.#signal = signal;
  }

  /** What is on the disk; null until the iteration came to its end. */
  get pulled(): PulledModel | null {
    return this.#pulled;
  }

  /** Waits until the model is on the disk. Throws what the iteration throws. */
  async wait(): Promise<PulledModel> {
    for await (const _ of this) {
      // Nobody looks.
    }
    if (this.#pulled === null) {
      throw new UnexpectedError("the pull was left before its end");
    }
    return this.#pulled;
  }

  protected override open(): MessageSource<PullModelResponse> {
    const { models, timeouts } = this.#connection;
    const timeoutMs = Math.ceil(timeouts.watch * 1000);
    return new MessageStream(
      this.#connection,
      async (signal) => models.pullModel(this.#request, { signal, timeoutMs }),
      {
        firstTimeout: timeouts.unary,
        idleTimeout: timeouts.streamIdle,
        signal: this.#signal,
      },
    );
  }

  protected override take(message: PullModelResponse): PullProgress | null {
    switch (message.kind.case) {
      case "progress":
        return pullProgress(message.kind.value);
      case "pulled":
        this.#pulled = pulledModel(message.kind.value);
        return null;
      case undefined:
        return null;
    }
  }

  protected override finish(): void {
    if (this.#pulled === null) {
      throw new UnexpectedError("the node ended the pull without its model");
    }
  }
}
