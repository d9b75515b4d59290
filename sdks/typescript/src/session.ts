/** A session: a history of token ids that a verifier continues. */

import { create } from "@bufbuild/protobuf";

import { Answer, Floor, LONGEST_ANSWER, Words, type Begun } from "./answer.js";
import { pause } from "./cancellation.js";
import {
  GroupLost,
  HistoryLengthMismatch,
  KakeyaError,
  RestorerLost,
  SessionBusy,
  SessionNotFound,
  TransportError,
  UsageError,
} from "./errors.js";
import type { CallOptions } from "./fleet.js";
import { generateRequest, type GenerateOptions, type SayOptions } from "./generate-options.js";
import { GenerationSource, MAX_RESUMPTIONS } from "./generation-source.js";
import { Generation } from "./generation.js";
import { ModelOfferSchema } from "./generated/kakeya/v1/model_pb.js";
import type { GenerateRequest, GenerateResponse } from "./generated/kakeya/v1/runtime_pb.js";
import type { KvStrategy, ModelOffer, Plan, SessionInfo } from "./generated/values.js";
import { kvStrategy, modelOffer, plan } from "./generated/wire.js";
import { History } from "./history.js";
import { MAX_APPEND_TOKENS, type Place } from "./place.js";
import * as ranges from "./ranges.js";
import { pauseSeconds } from "./retries.js";
import { MessageStream, type MessageSource } from "./streams.js";
import { isLost, isNobodyYet, mayReturn, succeed, type Opening } from "./successor.js";
import { TextCodec } from "./text/codec.js";
import { fetchTokenizer } from "./tokenizer-fetch.js";
import { Turn } from "./turn.js";
import type { Resumption } from "./values/session.js";

/**
 * A session on a verifier. Made by `Client.createSession`.
 *
 * Holds the tokens that it appended and received as `history`, so that they can be
 * appended to a session elsewhere; with the option `resume` it does so itself when
 * its verifier is lost, and there again when its node has forgotten it. `await using`
 * closes the session at the end of a block; there, a session that is gone already is
 * not an error.
 *
 * A generation that was left early may have committed tokens on the node that
 * never arrived here. The next append or generation then rewinds the session to
 * `history`: what arrived is what it continues. The node may have to compute the
 * keys and values of the history anew for that.
 */
export class Session {
  #place: Place;
  readonly #opening: Opening;
  #resumes: boolean;
  readonly #history: History;
  readonly #resumptions: Resumption[] = [];
  // One operation at a time: positions are known only between operations.
  readonly #turn = new Turn();
  #running: MessageSource<GenerateResponse> | undefined;
  #closed = false;
  #codec: TextCodec | undefined;
  readonly #floor = new Floor();

  constructor(place: Place, opening: Opening, resumes: boolean, history: History) {
    this.#place = place;
    this.#opening = opening;
    this.#resumes = resumes;
    this.#history = history;
  }

  /** Names the session on its node. A rewind or a resumption changes it. */
  get sessionId(): string {
    return this.#place.sessionId;
  }

  /** The node that holds the session, host:port. */
  get address(): string {
    return this.#place.connection.address;
  }

  /** The verifier model, as the node's card offers it. */
  get model(): ModelOffer {
    return modelOffer(this.#place.opened.model ?? create(ModelOfferSchema));
  }

  /** Ids are 0 to vocabularySize - 1. */
  get vocabularySize(): number {
    return this.#place.opened.vocabularySize;
  }

  /** The pair that serves the session, with reasons. */
  get plan(): Plan {
    return plan(this.#place.opened.plan);
  }

  /**
   * How keys and values are kept, asked for or not; null when nothing was asked for and
   * the node does not tell.
   */
  get kvStrategy(): KvStrategy | null {
    const number = this.#place.opened.kvStrategy || this.#opening.request.kvStrategy;
    return number ? kvStrategy(number) : null;
  }

  /**
   * What the node took to compute the prompt, in seconds.
   *
   * The prompt is all that was appended since the session generated last. Waits for
   * other sessions' turns are counted; 0 from nodes that do not tell.
   */
  get prefillSeconds(): number {
    return this.#history.prefillSeconds;
  }

  /** All ids that were appended and received, oldest first. */
  get history(): readonly number[] {
    return this.#history.ids();
  }

  /** Ids in `history`. */
  get historyLength(): number {
    return this.#history.length;
  }

  /** How often, why and where the session was opened anew. */
  get resumptions(): readonly Resumption[] {
    return [...this.#resumptions];
  }

  /**
   * Appends ids to the history; gives its new length.
   *
   * Sent again when the network failed, without ever doubling tokens. More than
   * 65,536 ids travel in pieces: after an error `history` tells what was appended.
   * Of a session whose memory is taken as its history grows, `roomTokens` takes that of so
   * many tokens behind them at once: a generation of as many then lacks none. Where there is
   * none nothing is appended (OutOfKvMemory). A node that takes over later knows nothing of it.
   * Throws HistoryLengthMismatch when the history has not `expectedHistoryLength`
   * ids, BadRequest for what is no list of ids, TokenOutOfVocabulary, EmptyAppend,
   * ContextExceeded, SessionNotFound, SessionBusy, TransportError; RestorerLost with the
   * ids appended.
   */
  append(
    tokenIds: readonly number[],
    options: CallOptions & {
      expectedHistoryLength?: number | undefined;
      roomTokens?: number | undefined;
    } = {},
  ): Promise<number> {
    return this.#turn.run(async () => {
      ranges.tokenIds("tokenIds", tokenIds);
      const roomTokens = ranges.whole("roomTokens", options.roomTokens ?? 0, 0);
      this.#checkIdle();
      const { expectedHistoryLength, signal } = options;
      if (expectedHistoryLength !== undefined && expectedHistoryLength !== this.#history.length) {
        throw new HistoryLengthMismatch(
          `the history held here has ${this.#history.length} tokens, ` +
            `not ${expectedHistoryLength}; append what is missing`,
        );
      }
      for (let start = 0; start < (tokenIds.length || 1); start += MAX_APPEND_TOKENS) {
        const piece = tokenIds.slice(start, start + MAX_APPEND_TOKENS);
        const later = tokenIds.length - start - piece.length;
        await this.#appendPiece(piece, roomTokens > 0 ? later + roomTokens : 0, signal);
      }
      return this.#history.length;
    });
  }

  async #appendPiece(
    tokenIds: readonly number[],
    room: number,
    signal?: AbortSignal,
  ): Promise<void> {
    let seconds: number;
    try {
      seconds = await this.#outliving(() => this.#appendHere(tokenIds, room, signal), signal);
    } catch (error) {
      if (error instanceof RestorerLost) {
        // The node has them; their keys and values wait for an archive.
        this.#history.append(tokenIds);
        this.#history.pending = this.#history.length;
      }
      throw error;
    }
    this.#history.append(tokenIds, seconds);
  }

  /** Gives the seconds that the node took; 0 when their answer was lost. */
  async #appendHere(
    tokenIds: readonly number[],
    room: number,
    signal?: AbortSignal,
  ): Promise<number> {
    const { length } = this.#history;
    const send = () => this.#place.append(tokenIds, length, this.#history.pending, room, signal);
    try {
      return await send();
    } catch (error) {
      if (signal?.aborted || error instanceof TransportError) {
        // Whether the node appended them is not known.
        this.#history.inStep = false;
      }
      if (!(error instanceof HistoryLengthMismatch)) {
        throw error;
      }
      if (!this.#history.inStep) {
        await this.#rewind(length, signal);
        return send();
      }
      if (
        error.attempts === 1 ||
        // The first attempt may have been applied and only its answer lost.
        (await this.#place.info(signal)).historyLength !== length + tokenIds.length
      ) {
        throw error;
      }
      return 0;
    }
  }

  /**
   * Continues the history by at most `maxTokens` ids.
   *
   * Throws BadRequest. Nothing is sent before the iteration begins, which throws
   * EmptyHistory, BadRequest, SessionNotFound, SessionBusy, RestorerLost (the session lives),
   * TransportError, and the signal's reason.
   */
  generate(options: GenerateOptions): Generation {
    const request = generateRequest(options, this.#resumes);
    return new Generation(() => this.#startGeneration(request, options.signal), this.#history);
  }

  /**
   * Appends `text` as it is, and gives what the model says after it as text.
   *
   * By the model's tokenizer (with the packages of `@kakeya/runtime/text`), whose stop tokens
   * end it too; the first text of a history also gets the tokens that open one. A chat, in
   * turns, is `Client.chat`. Throws BadRequest. Nothing is sent before the iteration begins,
   * which throws what `textCodec`, `append` and `generate` throw; the text stays appended then.
   */
  say(text: string, options: SayOptions = {}): Answer {
    const asked = { ...options, maxTokens: options.maxTokens ?? LONGEST_ANSWER };
    // What is outside its range is told now.
    this.generate(asked);
    return new Answer({
      begin: (answer) => this.#say(text, asked, answer),
      // The history holds what came.
      end: () => undefined,
    });
  }

  async #say(text: string, options: GenerateOptions, answer: Answer): Promise<Begun> {
    const { signal, stopTokenIds = [] } = options;
    this.#floor.take(answer);
    const codec = (this.#codec ??= await this.#fetchCodec(signal));
    const opens = this.#history.length === 0;
    await this.append(codec.encode(text, { addSpecialTokens: opens }), { signal });
    const stops = [...new Set([...codec.stopTokenIds, ...stopTokenIds])];
    return {
      generation: this.generate({ ...options, stopTokenIds: stops }),
      words: new Words(codec, [...stops, ...this.#opening.request.stopTokenIds]),
    };
  }

  async #fetchCodec(signal?: AbortSignal): Promise<TextCodec> {
    const { connection } = this.#place;
    const { modelId } = this.model;
    const { files } = await fetchTokenizer(connection, modelId, signal);
    return TextCodec.fromFiles(files, `${modelId} at ${connection.address}`);
  }

  #startGeneration(
    request: GenerateRequest,
    signal?: AbortSignal,
  ): MessageSource<GenerateResponse> {
    this.#checkIdle();
    const { timeouts } = this.#place.connection;
    const { deadlineSeconds } = request;
    const timeout =
      deadlineSeconds > 0
        ? Math.min(timeouts.generation, deadlineSeconds + timeouts.streamIdle)
        : timeouts.generation;
    const open = (each: GenerateRequest) => this.#openStream(each, timeout, signal);
    const source = this.#resumes
      ? new GenerationSource(request, {
          open,
          resume: (lost, seconds) => {
            const left = deadlineSeconds > 0 ? deadlineSeconds - seconds : Infinity;
            return this.#turn.run(() => this.#goElsewhere(lost, signal, left));
          },
          history: this.#history,
          stopTokenIds: new Set([...this.#opening.request.stopTokenIds, ...request.stopTokenIds]),
          timeout: timeouts.generation,
        })
      : open(request);
    this.#running = source;
    return source;
  }

  #openStream(
    request: GenerateRequest,
    timeout: number,
    signal?: AbortSignal,
  ): MessageStream<GenerateResponse> {
    const { connection } = this.#place;
    const { timeouts } = connection;
    return new MessageStream(
      connection,
      (cancelled) =>
        this.#turn.run(async () => {
          await this.#settle(cancelled);
          cancelled.throwIfAborted();
          this.#history.inStep = false;
          return this.#place.generate(request, this.#history.length, {
            signal: cancelled,
            timeoutMs: Math.ceil(timeout * 1000),
          });
        }),
      {
        firstTimeout: timeouts.firstTokens + this.#history.pending * timeouts.appendPerToken,
        idleTimeout: timeouts.streamIdle,
        signal,
      },
    );
  }

  /** The session as its node sees it. Throws SessionNotFound, TransportError. */
  info(options: CallOptions = {}): Promise<SessionInfo> {
    return this.#place.info(options.signal);
  }

  /**
   * A new session with the first `historyLength` ids of this one; all unless given.
   *
   * Throws what `Client.createSession` throws, SessionNotFound, and
   * HistoryLengthMismatch when the history is shorter.
   */
  async fork(historyLength = this.#history.length, options: CallOptions = {}): Promise<Session> {
    const place = await this.#fork(historyLength, options.signal);
    const kept = new History(this.#history.ids(0, historyLength));
    return new Session(place, this.#opening, this.#resumes, kept);
  }

  async #fork(length: number, signal?: AbortSignal): Promise<Place> {
    if (!(Number.isInteger(length) && length >= 0 && length <= this.#history.length)) {
      throw new HistoryLengthMismatch(
        `the history held here has ${this.#history.length} tokens, ${length} cannot be kept`,
      );
    }
    return this.#place.fork(length, signal);
  }

  /**
   * Goes back to the first `historyLength` ids; all of `history` unless given.
   *
   * The session goes on as a fork of itself, under a new `sessionId`. Throws what
   * `fork` throws, and SessionBusy.
   */
  rewind(historyLength?: number, options: CallOptions = {}): Promise<void> {
    return this.#turn.run(async () => {
      this.#checkIdle();
      const length = historyLength ?? this.#history.length;
      await this.#outliving(() => this.#rewind(length, options.signal), options.signal);
    });
  }

  async #rewind(length: number, signal?: AbortSignal): Promise<void> {
    const forked = await this.#fork(length, signal);
    const left = this.#place;
    this.#place = forked;
    this.#history.cut(length);
    try {
      await left.close(left.connection.timeouts.unary, signal);
    } catch (error) {
      if (!(error instanceof SessionNotFound)) {
        throw error;
      }
    }
  }

  /**
   * Takes the session to another live node that serves the same weights.
   *
   * Opens it there as it was opened, but for a named proposer or archive that is
   * lost too, and appends `history`. The session on the node before is closed where
   * it can be. Throws NoPlacement when there is no such node, and what opening and
   * appending throw; the session then stays where it is.
   */
  resume(options: CallOptions = {}): Promise<void> {
    return this.#turn.run(async () => {
      this.#checkIdle();
      const left = this.#place;
      await this.#move("ASKED", { signal: options.signal });
      await left.abandon();
    });
  }

  /** Does the work, in the session opened anew when this one is lost. */
  async #outliving<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (let resumptions = 0; ; resumptions += 1) {
      try {
        return await work();
      } catch (error) {
        if (!this.#resumes || !isLost(error) || resumptions === MAX_RESUMPTIONS) {
          throw error;
        }
        await this.#goElsewhere(error, signal);
      }
    }
  }

  /** Goes on after a loss, in `seconds` at most; throws the loss when nobody goes on. */
  async #goElsewhere(lost: KakeyaError, signal?: AbortSignal, seconds = Infinity): Promise<void> {
    if (this.#closed || this.#place.connection.closed) {
      throw lost;
    }
    try {
      await this.#moveWhenPossible(lost, seconds, signal);
    } catch (error) {
      if (!(error instanceof KakeyaError)) {
        throw error;
      }
      lost.metadata["resumption_reason"] = error.reason;
      lost.metadata["resumption_failure"] = error.message;
      throw lost;
    }
  }

  /**
   * Moves; where nobody can go on yet, waits for one that can.
   *
   * The node itself is one of them: it may be back soon, as after an upgrade.
   */
  async #moveWhenPossible(
    lost: KakeyaError,
    seconds: number,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const left = this.#place;
    const patience = Math.min(seconds, left.connection.timeouts.resume);
    const until = performance.now() + patience * 1000;
    let forgotten = lost instanceof SessionNotFound;
    for (let attempt = 0; ; attempt += 1) {
      try {
        await this.#move(lost.reason, { forgotten, signal });
        break;
      } catch (error) {
        const wait = pauseSeconds(attempt, 0.5 + Math.random() / 2);
        const late = performance.now() + wait * 1000 >= until;
        if (!(error instanceof KakeyaError) || !isNobodyYet(error)) {
          throw error;
        }
        if (!mayReturn(lost) || this.#closed || late) {
          throw error;
        }
        await pause(wait, signal);
      }
      // Once it is back, it knows nothing of the session that it had. Where its connection
      // alone broke, the session is opened anew all the same, from what arrived here.
      forgotten = true;
    }
    if (left.connection === this.#place.connection) {
      await left.abandon();
    }
  }

  async #move(
    reason: string,
    options: { forgotten?: boolean; signal?: AbortSignal | undefined },
  ): Promise<void> {
    const startedAt = performance.now();
    const left = this.#place;
    const place = await succeed(left, this.#opening, this.#history, options);
    this.#place = place;
    this.#history.moved();
    this.#resumptions.push({
      fromAddress: left.connection.address,
      toAddress: place.connection.address,
      reason,
      historyLength: this.#history.length,
      seconds: (performance.now() - startedAt) / 1000,
    });
  }

  #checkIdle(): void {
    if (this.#running?.ended === false && !this.#place.connection.closed) {
      throw new SessionBusy(
        "the session's generation still runs: finish or leave its iterator, or fork the session",
      );
    }
  }

  /** Makes the node's history the one held here; nothing to do in most cases. */
  async #settle(signal?: AbortSignal): Promise<void> {
    if (this.#history.inStep) {
      return;
    }
    const info = await this.#place.info(signal);
    if (info.state === "idle" && info.historyLength === this.#history.length) {
      this.#history.inStep = true;
    } else {
      await this.#rewind(this.#history.length, signal);
    }
  }

  /** Closes the session and frees its memory. Throws SessionNotFound the second time. */
  async close(options: CallOptions = {}): Promise<void> {
    this.#running?.leave();
    // An operation that this ends must not open the session again.
    this.#resumes = false;
    await this.#place.close(this.#place.connection.timeouts.unary, options.signal);
    this.#closed = true;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#running?.leave();
    if (this.#closed || this.#place.connection.closed) {
      return;
    }
    this.#closed = true;
    try {
      await this.#place.close(this.#place.connection.timeouts.leave);
    } catch (error) {
      // Gone, or gone with its node or its verifier's group, or evicted after its idle time.
      const gone = [SessionNotFound, GroupLost, TransportError, UsageError];
      if (!gone.some((kind) => error instanceof kind)) {
        throw error;
      }
    }
  }
}
