/** One generation of a session, as an asynchronous iterable of committed tokens. */

import { UnexpectedError } from "./errors.js";
import type {
  CommittedTokens,
  GenerateResponse,
  TokenAlternatives,
} from "./generated/kakeya/v1/runtime_pb.js";
import type { History } from "./history.js";
import { ServerStream, type MessageSource } from "./streams.js";
import type { GenerationDone } from "./generated/values.js";
import { generationDone } from "./generated/wire.js";
import type { Alternative, Completion, Tokens } from "./values/session.js";

/**
 * Tokens as they commit: `for await (const tokens of session.generate({ maxTokens: 100 }))`.
 *
 * Iterated once, in blocks or by `ids()`. Leaving the iteration stops the work on
 * the node within a block; the session lives.
 */
export class Generation extends ServerStream<GenerateResponse, Tokens> {
  readonly #start: () => MessageSource<GenerateResponse>;
  readonly #history: History;
  #done: GenerationDone | null = null;

  constructor(start: () => MessageSource<GenerateResponse>, history: History) {
    super();
    this.#start = start;
    this.#history = history;
  }

  /** The end; null until the iteration came to it. */
  get done(): GenerationDone | null {
    return this.#done;
  }

  /** The same tokens, one id at a time; the session's history grows by blocks. */
  async *ids(): AsyncGenerator<number, void, undefined> {
    for await (const block of this) {
      yield* block.tokenIds;
    }
  }

  /** Waits for the whole generation. Throws what the iteration throws. */
  async completion(): Promise<Completion> {
    const tokenIds: number[] = [];
    const logProbabilities: number[] = [];
    const alternatives: (readonly Alternative[])[] = [];
    for await (const block of this) {
      tokenIds.push(...block.tokenIds);
      logProbabilities.push(...block.logProbabilities);
      alternatives.push(...block.alternatives);
    }
    if (this.#done === null) {
      throw new UnexpectedError("the generation was left before its end");
    }
    return { tokenIds, done: this.#done, logProbabilities, alternatives };
  }

  protected override open(): MessageSource<GenerateResponse> {
    return this.#start();
  }

  protected override take(message: GenerateResponse): Tokens | null {
    switch (message.kind.case) {
      case "tokens": {
        const block = tokens(message.kind.value);
        this.#history.receive(block.tokenIds, block.firstIndex);
        return block;
      }
      case "done":
        this.#done = generationDone(message.kind.value);
        this.#history.finish(this.#done.historyLength);
        return null;
      case undefined:
        return null;
    }
  }

  protected override finish(): void {
    if (this.#done === null) {
      throw new UnexpectedError("the node ended the generation without saying why");
    }
  }
}

function tokens(message: CommittedTokens): Tokens {
  return {
    tokenIds: message.tokenIds,
    firstIndex: Number(message.firstIndex),
    draftedCount: message.draftedCount,
    logProbabilities: message.logProbabilities,
    alternatives: message.alternatives.map(alternatives),
  };
}

function alternatives(message: TokenAlternatives): readonly Alternative[] {
  if (message.tokenIds.length !== message.logProbabilities.length) {
    throw new UnexpectedError("the node sent alternatives without their log-probabilities");
  }
  return message.tokenIds.map((tokenId, index) => ({
    tokenId,
    logProbability: message.logProbabilities[index] ?? Number.NaN,
  }));
}
