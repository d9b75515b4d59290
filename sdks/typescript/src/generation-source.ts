/** The messages of one generation, from one node or, when that is lost, from several. */

import { create } from "@bufbuild/protobuf";

import { Draining, UnexpectedError, type KakeyaError } from "./errors.js";
import {
  GenerateDoneSchema,
  GenerateResponseSchema,
  StopReason,
  type GenerateRequest,
  type GenerateResponse,
} from "./generated/kakeya/v1/runtime_pb.js";
import type { History } from "./history.js";
import type { MessageSource, MessageStream } from "./streams.js";
import { isLost } from "./successor.js";

/** Of one generation or append: nodes that die one after the other have a common cause. */
export const MAX_RESUMPTIONS = 8;

/** What a generation does with its session. */
export interface GenerationTerms {
  /** The stream of what a request asks for, at the session's node. */
  readonly open: (request: GenerateRequest) => MessageStream<GenerateResponse>;
  /**
   * Takes the session to another node for the error given, so many seconds after the
   * generation began; throws that when there is none.
   */
  readonly resume: (lost: KakeyaError, seconds: number) => Promise<void>;
  readonly history: History;
  /** Ids that end a generation of the session. */
  readonly stopTokenIds: ReadonlySet<number>;
  /** Seconds that the generation may take in all. */
  readonly timeout: number;
}

/**
 * Reads a generation to its end.
 *
 * What a lost node still owed is asked of the next one: as many tokens as are
 * missing, of the same stream, in the time that is left. The end counts the tokens
 * of all nodes; its timeline is the last node's.
 */
export class GenerationSource implements MessageSource<GenerateResponse> {
  readonly #request: GenerateRequest;
  readonly #terms: GenerationTerms;
  readonly #start: number;
  readonly #startedAt = performance.now();
  #resumptions = 0;
  #stream: MessageStream<GenerateResponse>;
  #ended = false;
  #completed = false;

  constructor(request: GenerateRequest, terms: GenerationTerms) {
    this.#request = request;
    this.#terms = terms;
    this.#start = terms.history.length;
    this.#stream = terms.open(request);
  }

  get ended(): boolean {
    return this.#ended;
  }

  get completed(): boolean {
    return this.#completed;
  }

  leave(): void {
    this.#ended = true;
    this.#stream.leave();
  }

  async read(): Promise<GenerateResponse | null> {
    if (this.#ended) {
      return null;
    }
    try {
      return await this.#read();
    } catch (error) {
      this.leave();
      throw error;
    }
  }

  async #read(): Promise<GenerateResponse | null> {
    for (;;) {
      let lost: KakeyaError;
      try {
        const message = await this.#stream.read();
        if (message !== null && !isDraining(message)) {
          return this.#whole(message);
        }
        if (message === null && (this.#ended || this.#completed)) {
          this.#ended = true;
          return null;
        }
        lost = loss(message);
        this.#stream.leave();
      } catch (error) {
        if (!isLost(error)) {
          throw error;
        }
        lost = error;
      }
      const end = await this.#goOn(lost);
      if (end !== null || this.#ended) {
        return end;
      }
    }
  }

  /** Opens the rest elsewhere; gives the end when nothing is missing but that. */
  async #goOn(lost: KakeyaError): Promise<GenerateResponse | null> {
    this.#resumptions += 1;
    const late = this.#seconds >= this.#terms.timeout;
    if (this.#ended || this.#completed || late || this.#resumptions > MAX_RESUMPTIONS) {
      throw lost;
    }
    const end = this.#ownEnd();
    if (end !== null) {
      return end;
    }
    await this.#terms.resume(lost, this.#seconds);
    // Appending there took a while.
    const lateEnd = this.#ended ? null : this.#ownEnd();
    if (lateEnd === null && !this.#ended) {
      this.#stream = this.#terms.open(this.#missing());
    }
    return lateEnd;
  }

  /** Tokens that arrived since the generation began, from all nodes. */
  get #received(): number {
    return this.#terms.history.length - this.#start;
  }

  get #seconds(): number {
    return (performance.now() - this.#startedAt) / 1000;
  }

  /** The message; an end with the count and the seconds of all nodes. */
  #whole(message: GenerateResponse): GenerateResponse {
    if (message.kind.case === "done") {
      this.#completed = true;
      const done = message.kind.value;
      if (this.#resumptions > 0) {
        done.generatedTokenCount = this.#received;
        if (done.timings !== undefined) {
          done.timings.totalSeconds = this.#seconds;
        }
      }
    }
    return message;
  }

  #missing(): GenerateRequest {
    const { deadlineSeconds, maxTokens, saidTokenCount } = this.#request;
    return {
      ...this.#request,
      maxTokens: maxTokens - this.#received,
      saidTokenCount: saidTokenCount + BigInt(this.#received),
      deadlineSeconds: deadlineSeconds && deadlineSeconds - this.#seconds,
    };
  }

  /** The end of a generation that has all its tokens, or no time left. */
  #ownEnd(): GenerateResponse | null {
    const { deadlineSeconds, maxTokens, seed } = this.#request;
    const { history, stopTokenIds } = this.#terms;
    let stopReason: StopReason;
    if (this.#received > 0 && stopTokenIds.has(history.last)) {
      stopReason = StopReason.STOP_TOKEN;
    } else if (maxTokens > 0 && this.#received >= maxTokens) {
      stopReason = StopReason.MAX_TOKENS;
    } else if (deadlineSeconds > 0 && this.#seconds >= deadlineSeconds) {
      stopReason = StopReason.DEADLINE;
    } else {
      return null;
    }
    this.#completed = true;
    const done = create(GenerateDoneSchema, {
      stopReason,
      generatedTokenCount: this.#received,
      historyLength: BigInt(history.length),
      timings: { totalSeconds: this.#seconds },
      seed: seed ?? 0n,
    });
    return create(GenerateResponseSchema, { kind: { case: "done", value: done } });
  }
}

function isDraining({ kind }: GenerateResponse): boolean {
  return kind.case === "done" && kind.value.stopReason === StopReason.DRAINING;
}

function loss(message: GenerateResponse | null): KakeyaError {
  return message === null
    ? new UnexpectedError("the node ended the generation without saying why")
    : new Draining("the node is leaving the fleet");
}
