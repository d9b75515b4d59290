/** A model on its way into a node, as an asynchronous iterable of its progress. */

import type { Connection } from "./connection.js";
import { UnexpectedError } from "./errors.js";
import type {
  LoadModelRequest,
  LoadModelResponse,
} from "./generated/kakeya/v1/model_service_pb.js";
import type { LoadedModel, LoadProgress } from "./generated/values.js";
import { loadedModel, loadProgress } from "./generated/wire.js";
import { MessageStream, ServerStream, type MessageSource } from "./streams.js";

/**
 * How a load stands: `for await (const progress of client.fleet.loadModel("smollm2"))`.
 *
 * Iterated once, or waited for. Who leaves it leaves the load alone, which goes on; to load the
 * model again is to hear of it again.
 */
export class ModelLoad extends ServerStream<LoadModelResponse, LoadProgress> {
  readonly #connection: Connection;
  readonly #request: LoadModelRequest;
  readonly #signal: AbortSignal | undefined;
  #loaded: LoadedModel | null = null;

  constructor(connection: Connection, request: LoadModelRequest, signal?: AbortSignal) {
    super();
    this.#connection = connection;
    this.#request = request;
    this.#signal = signal;
  }

  /** What is served; null until the iteration came to its end. */
  get loaded(): LoadedModel | null {
    return this.#loaded;
  }

  /** Waits until the model is served. Throws what the iteration throws. */
  async wait(): Promise<LoadedModel> {
    for await (const _ of this) {
      // Nobody looks.
    }
    if (this.#loaded === null) {
      throw new UnexpectedError("the load was left before its end");
    }
    return this.#loaded;
  }

  protected override open(): MessageSource<LoadModelResponse> {
    const { models, timeouts } = this.#connection;
    const timeoutMs = Math.ceil(timeouts.watch * 1000);
    return new MessageStream(
      this.#connection,
      async (signal) => models.loadModel(this.#request, { signal, timeoutMs }),
      {
        firstTimeout: timeouts.unary,
        idleTimeout: timeouts.streamIdle,
        signal: this.#signal,
      },
    );
  }

  protected override take(message: LoadModelResponse): LoadProgress | null {
    switch (message.kind.case) {
      case "progress":
        return loadProgress(message.kind.value);
      case "loaded":
        this.#loaded = loadedModel(message.kind.value);
        return null;
      case undefined:
        return null;
    }
  }

  protected override finish(): void {
    if (this.#loaded === null) {
      throw new UnexpectedError("the node ended the load without its model");
    }
  }
}
