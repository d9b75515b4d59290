/** The client: any node of the fleet is the way in. */

import { create } from "@bufbuild/protobuf";

import { Chat, onlyVerifier, rendering, type ChatTerms } from "./chat.js";
import { Connection } from "./connection.js";
import { forNode, type Credentials, type Owner, type TlsSource } from "./credentials.js";
import { embed, type EmbedOptions } from "./embedding.js";
import { BadRequest, ModelServedElsewhere } from "./errors.js";
import { Fleet, type CallOptions } from "./fleet.js";
import {
  CreateSessionRequestSchema,
  SpeculationMode,
  WatchSessionsRequestSchema,
  type CreateSessionRequest,
} from "./generated/kakeya/v1/runtime_pb.js";
import { History } from "./history.js";
import { requestId } from "./place.js";
import * as ranges from "./ranges.js";
import { RetryBudget } from "./retries.js";
import { Roster } from "./roster.js";
import { Session } from "./session.js";
import { openSession } from "./successor.js";
import { textCodec } from "./text/index.js";
import { timeoutsOf, type Timeouts } from "./timeouts.js";
import { fetchTokenizer, type FetchedTokenizer } from "./tokenizer-fetch.js";
import type { KvStrategy, SessionInfo, TextVector } from "./generated/values.js";
import { sessionInfo } from "./generated/wire.js";
import type { SpeculationChoice } from "./values/session.js";
import type { SessionsEvent } from "./values/watch.js";
import { Watch } from "./watch.js";
import { Ways } from "./ways.js";
import { build } from "./wire/numbers.js";
import { kvStrategyNumber, restorer, type RestorerOptions } from "./wire/restorer.js";
import { hasMore, sessionsEvents } from "./wire/watch.js";

/** How a client calls its nodes. */
export interface ClientOptions {
  /** Those that are not given keep their defaults. */
  readonly timeouts?: Partial<Timeouts> | undefined;
  /** Sent with every call as `authorization: Bearer`; beyond loopback only with `tls`. */
  readonly apiKey?: string | undefined;
  /** TLS towards every node; plain HTTP/2 unless given. */
  readonly tls?: TlsSource | undefined;
  /** For the node at the client's address alone, there in place of `apiKey`. */
  readonly owner?: Owner | undefined;
}

/**
 * How a session is opened.
 *
 * With kvStrategy "restored" evicted positions stay within reach: `restorer` is
 * "archive" (the default: another node keeps them, exact), "projection" (a learned
 * map makes them of a smaller vector each), or "identity", a check of the plumbing.
 */
export interface SessionOptions extends RestorerOptions, CallOptions {
  /**
   * The first tokens of the history: computed before the session is there.
   *
   * As many as one request takes, 65,536, travel with it, more are appended; where that
   * fails, no session stays open.
   */
  readonly tokens?: readonly number[] | undefined;
  /** With `tokens`: see `Session.append`; 0 unless given. */
  readonly roomTokens?: number | undefined;
  /**
   * The node's choice unless given: "restored" where a live archive has room and the
   * verifier can use it, else "sink_window"; the session's `kvStrategy` tells.
   */
  readonly kvStrategy?: KvStrategy | undefined;
  /** Positions at the start that stay resident; the node's default, 4, unless given. */
  readonly sinkTokens?: number | undefined;
  /** Latest positions that stay resident; the node's default, 1,024, unless given. */
  readonly windowTokens?: number | undefined;
  /** Generations stop after any of these. */
  readonly stopTokenIds?: readonly number[] | undefined;
  /** "auto" unless given. */
  readonly speculation?: SpeculationChoice | undefined;
  /** For lists and logs; at most 128 characters. */
  readonly clientLabel?: string | undefined;
  /**
   * Sent with each call of the session (W3C Trace Context), so that its work on all nodes
   * is part of your trace; `fleet trace` shows it by the trace's id.
   */
  readonly traceparent?: string | undefined;
  /** The same id within ten minutes gives the same session; made up unless given. */
  readonly requestId?: string | undefined;
  /**
   * Bounds a session of kvStrategy "full", and takes its memory at once. Unless given the memory
   * follows the history, up to the model's context length, and an append or a generation that
   * finds none throws OutOfKvMemory.
   */
  readonly maxHistoryTokens?: number | undefined;
  /**
   * Whether the session goes on by itself: elsewhere when its verifier is lost, and there
   * again when its node has forgotten it (evicted, or gone with a restart).
   */
  readonly resume?: boolean | undefined;
}

/** How a chat is begun; `resume` is true unless given. */
export interface ChatOptions extends Omit<SessionOptions, "tokens" | "stopTokenIds">, ChatTerms {}

/**
 * A client of one node, HOST:PORT, and through it of the fleet.
 *
 * Connects with its first call. `await using` closes it at the end of a block.
 */
export class Client {
  readonly #roster: Roster;

  /**
   * Throws UsageError for what is no address, and for credentials that may not be
   * used with it.
   */
  constructor(address: string, options: ClientOptions = {}) {
    const timeouts = timeoutsOf(options.timeouts);
    const credentials: Credentials = { apiKey: options.apiKey, tls: options.tls };
    const budget = new RetryBudget();
    const connect = (each: string, nodeId: string) =>
      new Connection(each, timeouts, budget, forNode(credentials, nodeId));
    const own = { ...credentials, owner: options.owner };
    const ways = new Ways(credentials);
    this.#roster = new Roster(new Connection(address, timeouts, budget, own), connect, ways);
  }

  /** The node that is asked first, host:port. */
  get address(): string {
    return this.#roster.home.address;
  }

  /** The fleet as that node sees it. */
  get fleet(): Fleet {
    return new Fleet(this.#roster.home);
  }

  /**
   * Opens a session on a node that serves `model`.
   *
   * A node that does not serve the model names one that does; the client follows
   * once. Throws ModelNotFound, ModelServedElsewhere, NoPlacement, BadRequest,
   * OutOfKvMemory, KvStrategyUnsupported, NoArchive, ArchiveFull, RestorerMismatch,
   * TrainedForAnother, Draining, TransportError; with `tokens` also what
   * `Session.append` throws.
   */
  async createSession(model: string, options: SessionOptions = {}): Promise<Session> {
    const { signal } = options;
    const request = sessionRequest(model, options);
    const traceparent = ranges.traceparent(options.traceparent ?? "");
    const tokens = ranges.tokenIds("tokens", options.tokens ?? []);
    const resumes = options.resume ?? false;
    if (resumes) {
      // Who else is there must be known before the first node is lost.
      await this.#roster.remember(signal);
    }
    const place = await this.#followed((connection) =>
      openSession(connection, request, tokens, { traceparent, signal }),
    );
    const history = new History();
    history.append(
      tokens.slice(0, Number(place.opened.historyLength)),
      place.opened.prefillSeconds,
    );
    const session = new Session(place, { request, roster: this.#roster }, resumes, history);
    if (tokens.length > history.length) {
      try {
        const { roomTokens } = request;
        await session.append(tokens.slice(history.length), { signal, roomTokens });
      } catch (error) {
        await session[Symbol.asyncDispose]();
        throw error;
      }
    }
    return session;
  }

  /**
   * Begins a chat with `model`, over a session of its own.
   *
   * Without a model, with the one that the fleet verifies. Throws ChatTemplateNotFound for a
   * model without a template, unless `plain`; BadRequest where the fleet verifies several
   * models and none is named, whose `metadata.models` lists them; what `textCodec` and
   * `createSession` throw.
   */
  chat(options?: ChatOptions): Promise<Chat>;
  chat(model: string, options?: ChatOptions): Promise<Chat>;
  async chat(named: string | ChatOptions = {}, more: ChatOptions = {}): Promise<Chat> {
    const options = typeof named === "string" ? more : named;
    const { signal, resume = true, stopTokenIds = [] } = options;
    const model =
      typeof named === "string" ? named : onlyVerifier(await this.fleet.nodes({ signal }));
    const codec = await textCodec(this, model, { signal });
    const render = rendering(codec, model, options);
    const session = await this.createSession(model, {
      ...options,
      resume,
      stopTokenIds: [...codec.stopTokenIds, ...stopTokenIds],
    });
    return new Chat(session, codec, render, options);
  }

  /** Asks home, and once more the node that home names as serving the model. */
  async #followed<T>(ask: (connection: Connection) => Promise<T>): Promise<T> {
    try {
      return await ask(this.#roster.home);
    } catch (error) {
      if (!(error instanceof ModelServedElsewhere)) {
        throw error;
      }
      const there = this.#roster.ways.namedBy(error);
      if (!there) {
        throw error;
      }
      return ask(this.#roster.connection(there, error.nodeId));
    }
  }

  /**
   * The files of the tokenizer of `model`, from a node that serves it, or from the
   * cache where that has them; `@kakeya/runtime/text` makes a codec of them.
   *
   * Throws ModelNotFound, ModelServedElsewhere, TokenizerNotFound (served without
   * one), TokenizerMismatch, TransportError.
   */
  tokenizer(model: string, options: CallOptions = {}): Promise<FetchedTokenizer> {
    return this.#followed((connection) => fetchTokenizer(connection, model, options.signal));
  }

  /**
   * A text of `model`'s token ids as one vector of length 1, from a node that serves it.
   *
   * The mean of the model's last hidden states over all ids. Sent again when the network
   * failed. Throws EmptyAppend, TokenOutOfVocabulary, ContextExceeded, ModelNotFound,
   * ModelServedElsewhere, OutOfKvMemory, TooManySessions, Draining, BadRequest, TransportError.
   */
  async embed(
    model: string,
    tokenIds: readonly number[],
    options: EmbedOptions = {},
  ): Promise<TextVector> {
    const ids = ranges.tokenIds("tokenIds", tokenIds);
    const traceparent = ranges.traceparent(options.traceparent ?? "");
    return this.#followed((connection) =>
      embed(connection, model, ids, traceparent, options.signal),
    );
  }

  /**
   * All sessions of the client's node, oldest first, fetched by page.
   *
   * `pageSize` is 100 unless given. Throws BadRequest, BadPageToken, TransportError.
   */
  async *sessions(
    options: CallOptions & { pageSize?: number | undefined } = {},
  ): AsyncGenerator<SessionInfo, void, undefined> {
    const { home } = this.#roster;
    const pageSize = ranges.whole("pageSize", options.pageSize ?? 100, 0, ranges.MAX_PAGE_SIZE);
    let pageToken = "";
    do {
      const request = { pageSize, pageToken };
      const page = await home.unary(
        (terms) => home.runtime.listSessions(request, terms),
        home.timeouts.unary,
        { idempotent: true, signal: options.signal },
      );
      yield* page.sessions.map(sessionInfo);
      pageToken = page.nextPageToken;
    } while (pageToken);
  }

  /**
   * Ends a session of the client's node that is the caller's own; its history's length.
   *
   * For one that nobody holds any more: `Session.close` is for one's own. What runs in it ends
   * with SessionNotFound. Throws SessionNotFound, also for another caller's; BadRequest,
   * TransportError.
   */
  async closeSession(sessionId: string, options: CallOptions = {}): Promise<number> {
    const { home } = this.#roster;
    const request = { sessionId: ranges.name("sessionId", sessionId), requestId: requestId() };
    const response = await home.unary(
      (terms) => home.runtime.closeSession(request, terms),
      home.timeouts.unary,
      { idempotent: true, signal: options.signal },
    );
    return Number(response.historyLength);
  }

  /**
   * What the sessions of the client's node do, until the iteration is left.
   *
   * All sessions with their latest `blockCount` blocks each (at most 256; 64 unless
   * given) first; then each as it changes, at most ten times a second, and its end.
   * Throws BadRequest; the iteration WatcherTooSlow, TransportError.
   */
  watchSessions(
    options: CallOptions & { blockCount?: number | undefined } = {},
  ): Watch<SessionsEvent> {
    const { home } = this.#roster;
    const { blockCount: asked = 64 } = options;
    const blockCount = ranges.whole("blockCount", asked, 0, ranges.MAX_WATCHED_BLOCKS);
    const request = create(WatchSessionsRequestSchema, { blockCount, inParts: true });
    return new Watch(
      home,
      {
        open: (terms) => home.runtime.watchSessions(request, terms),
        event: sessionsEvents(),
        hasMore,
      },
      options.signal,
    ) as Watch<SessionsEvent>;
  }

  /**
   * Cancels what runs and closes the connections; a second close does nothing.
   *
   * Sessions stay on their nodes until they are closed or idle for too long.
   */
  async close(): Promise<void> {
    this.#roster.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function sessionRequest(model: string, options: SessionOptions): CreateSessionRequest {
  const { sinkTokens, windowTokens } = options;
  const restored = restorer(options);
  return build(CreateSessionRequestSchema, {
    modelId: model,
    kvStrategy: kvStrategyNumber(options.kvStrategy),
    ...(sinkTokens === undefined ? {} : { sinkTokens: ranges.whole("sinkTokens", sinkTokens, 0) }),
    ...(windowTokens === undefined
      ? {}
      : { windowTokens: ranges.whole("windowTokens", windowTokens, 1) }),
    stopTokenIds: ranges.stopTokenIds(options.stopTokenIds),
    speculation: speculation(options.speculation ?? "auto"),
    clientLabel: ranges.name("clientLabel", options.clientLabel ?? ""),
    requestId: ranges.name("requestId", options.requestId ?? requestId()),
    maxHistoryTokens: ranges.whole("maxHistoryTokens", options.maxHistoryTokens ?? 0, 0),
    roomTokens: ranges.whole("roomTokens", options.roomTokens ?? 0, 0),
    ...(restored === undefined ? {} : { restorer: restored }),
  });
}

function speculation(choice: SpeculationChoice) {
  switch (choice) {
    case "auto":
      return { mode: SpeculationMode.AUTO };
    case "off":
      return { mode: SpeculationMode.OFF };
    default:
      if (typeof choice !== "object" || choice === null) {
        throw new BadRequest(
          `speculation is "auto", "off" or a Speculation, not ${JSON.stringify(choice)}`,
          { metadata: { field: "speculation" } },
        );
      }
      return {
        mode: SpeculationMode.FIXED,
        proposerNodeId: choice.nodeId ?? "",
        proposerModelId: choice.proposerModel,
        blockSize: ranges.whole(
          "speculation.blockSize",
          choice.blockSize ?? 0,
          0,
          ranges.MAX_DRAFTED_TOKENS,
        ),
      };
  }
}
