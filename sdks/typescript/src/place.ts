/** A session on one node: the calls that name it. */

import { create } from "@bufbuild/protobuf";

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

/** A session, the node that holds it, and what that node said when it was opened. */
export class Place {
  constructor(
    readonly connection: Connection,
    readonly opened: CreateSessionResponse,
    readonly sessionId: string,
  ) {}

  /** The session that a fork of this one opened on the same node. */
  withSession(sessionId: string): Place {
    return new Place(this.connection, this.opened, sessionId);
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
    signal?: AbortSignal,
  ): Promise<number> {
    const { runtime, timeouts } = this.connection;
    const request = create(AppendTokensRequestSchema, {
      sessionId: this.sessionId,
      tokenIds: [...tokenIds],
      expectedHistoryLength: BigInt(length),
    });
    const timeout = appendSeconds(timeouts, tokenIds.length + pending);
    const send = this.connection.unary((terms) => runtime.appendTokens(request, terms), timeout, {
      idempotent: true,
      signal,
    });
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

  /** A session with the first `length` ids of this one, on the same node. */
  async fork(length: number, signal?: AbortSignal): Promise<Place> {
    const { runtime, timeouts } = this.connection;
    const response = await this.connection.unary(
      (terms) =>
        runtime.forkSession({ sessionId: this.sessionId, historyLength: BigInt(length) }, terms),
      timeouts.unary,
      { signal },
    );
    return this.withSession(response.sessionId);
  }

  /** Continues the history; the request's session is this one. */
  generate(
    request: GenerateRequest,
    options: { signal: AbortSignal; timeoutMs: number },
  ): AsyncIterable<GenerateResponse> {
    request.sessionId = this.sessionId;
    return this.connection.runtime.generate(request, options);
  }

  /** Closes the session within `timeout` seconds. */
  async close(timeout: number, signal?: AbortSignal): Promise<void> {
    const { runtime } = this.connection;
    await this.connection.unary(
      (terms) => runtime.closeSession({ sessionId: this.sessionId }, terms),
      timeout,
      { signal },
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
