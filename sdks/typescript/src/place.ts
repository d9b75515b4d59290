/** A session on one node: the calls that name it. */

import { randomBytes } from "node:crypto";

import { create } from "@bufbuild/protobuf";
import type { CallOptions as ConnectOptions } from "@connectrpc/connect";

import type { Connection } from "./connection.js";
import { KakeyaError } from "./errors.js";
import {
  AppendTokensRequestSchema,
  SessionInfoSchema,
  type CreateSessionResponse,
  type GenerateRequest,
  type GenerateResponse,
} from "./generated/kakeya/v1/runtime_pb.js";
import { appendSeconds } from "./timeouts.js";
import type { SessionInfo } from "./generated/values.js";
import { sessionInfo } from "./generated/wire.js";

/** Ids in one request: at most 5 bytes each, so well under the limit of 1 MiB. */
export const MAX_APPEND_TOKENS = 65_536;

/** A name that no other request has. */
export function requestId(): string {
  return randomBytes(16).toString("hex");
}

/** The terms of a call that is part of a trace; as they are, when it is empty. */
export function traced<T extends ConnectOptions>(terms: T, traceparent: string): T {
  return traceparent === "" ? terms : { ...terms, headers: { traceparent } };
}

/** A session, the node that holds it, and what that node said when it was opened. */
export class Place {
  constructor(
    readonly connection: Connection,
    readonly opened: CreateSessionResponse,
    readonly sessionId: string,
    /** Sent with each call, when not empty (W3C Trace Context). */
    readonly traceparent = "",
  ) {}

  /** What a call of the session is made with, besides `terms`. */
  #traced<T extends ConnectOptions>(terms: T): T {
    return traced(terms, this.traceparent);
  }

  /** The session that a fork of this one opened on the same node. */
  withSession(sessionId: string): Place {
    return new Place(this.connection, this.opened, sessionId, this.traceparent);
  }

  /**
   * Appends at most MAX_APPEND_TOKENS ids to a history of `length`; sent again when
   * the network failed. `pending` ids before them may have to be computed, too. Gives
   * the seconds that the node took to compute their keys and values.
   */
  async append(
    tokenIds: readonly number[],
    length: number,
    pending: number,
    roomTokens: number,
    signal?: AbortSignal,
  ): Promise<number> {
    const { runtime, timeouts } = this.connection;
    const request = create(AppendTokensRequestSchema, {
      sessionId: this.sessionId,
      tokenIds: [...tokenIds],
      expectedHistoryLength: BigInt(length),
      roomTokens,
    });
    const timeout = appendSeconds(timeouts, tokenIds.length + pending);
    const send = this.connection.unary(
      (terms) => runtime.appendTokens(request, this.#traced(terms)),
      timeout,
      { idempotent: true, signal },
    );
    return (await send).prefillSeconds;
  }

  /** The session as its node sees it. */
  async info(signal?: AbortSignal): Promise<SessionInfo> {
    const { runtime, timeouts } = this.connection;
    const response = await this.connection.unary(
      (terms) => runtime.getSessionInfo({ sessionId: this.sessionId }, terms),
      timeouts.unary,
      { idempotent: true, signal },
    );
    return sessionInfo(response.session ?? create(SessionInfoSchema));
  }

  /**
   * A session with the first `length` ids of this one, on the same node; sent again when
   * the network failed.
   */
  async fork(length: number, signal?: AbortSignal): Promise<Place> {
    const { runtime, timeouts } = this.connection;
    const { sessionId } = this;
    const request = { sessionId, historyLength: BigInt(length), requestId: requestId() };
    const response = await this.connection.unary(
      (terms) => runtime.forkSession(request, this.#traced(terms)),
      timeouts.unary,
      { idempotent: true, signal },
    );
    return this.withSession(response.sessionId);
  }

  /**
   * Continues the history, which has `length` ids here; the request's session is this one.
   *
   * A node where it has not refuses: no token is doubled or left out.
   */
  generate(
    request: GenerateRequest,
    length: number,
    options: { signal: AbortSignal; timeoutMs: number },
  ): AsyncIterable<GenerateResponse> {
    request.sessionId = this.sessionId;
    request.expectedHistoryLength = BigInt(length);
    return this.connection.runtime.generate(request, this.#traced(options));
  }

  /** Closes the session within `timeout` seconds; sent again when the network failed. */
  async close(timeout: number, signal?: AbortSignal): Promise<void> {
    const { runtime } = this.connection;
    const request = { sessionId: this.sessionId, requestId: requestId() };
    await this.connection.unary(
      (terms) => runtime.closeSession(request, this.#traced(terms)),
      timeout,
      { idempotent: true, signal },
    );
  }

  /** Closes the session where that can be done; its node evicts it otherwise. */
  async abandon(): Promise<void> {
    try {
      await this.close(this.connection.timeouts.leave);
    } catch (error) {
      if (!(error instanceof KakeyaError)) {
        throw error;
      }
    }
  }
}
