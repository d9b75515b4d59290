/** The way to one node: settings, deadlines, retries and errors of its calls. */

import type { Socket } from "node:net";

import { ConnectError, createClient, type CallOptions, type Client } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";

import { abortable, pause } from "./cancellation.js";
import {
  bearerOf,
  checkCredentials,
  doubtOf,
  openSocket,
  tlsOf,
  type Credentials,
} from "./credentials.js";
import { ClientClosed, KakeyaError, NodeUnreachable, UsageError } from "./errors.js";
import { CapabilityService } from "./generated/kakeya/v1/capability_pb.js";
import { ModelService } from "./generated/kakeya/v1/model_service_pb.js";
import { PlacementService } from "./generated/kakeya/v1/placement_pb.js";
import { RuntimeService } from "./generated/kakeya/v1/runtime_pb.js";
import { heardSessions } from "./heard-sessions.js";
import { MAX_ATTEMPTS, pauseSeconds, type RetryBudget } from "./retries.js";
import { deadlineExceeded, kakeyaError, unreachable } from "./rpc-status.js";
import type { Timeouts } from "./timeouts.js";

const MIB = 1024 * 1024;

// A frozen node is found after at most pingIntervalMs + pingTimeoutMs; a
// connection that lay idle for longer is pinged before it is used.
const PINGS = { pingIntervalMs: 10_000, pingTimeoutMs: 5_000 };

// A snapshot of 10,000 nodes takes about 6 MB.
const READ_MAX_BYTES = 16 * MIB;
const WRITE_MAX_BYTES = MIB;

/** How one call is made, besides its deadline. */
export interface CallTerms {
  /** Whether sending it twice does no harm, so that it may be sent again. */
  readonly idempotent?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The way to one node. Connects with its first call. */
export class Connection {
  readonly runtime: Client<typeof RuntimeService>;
  readonly capability: Client<typeof CapabilityService>;
  readonly models: Client<typeof ModelService>;
  readonly placement: Client<typeof PlacementService>;
  readonly #session: Http2SessionManager;
  readonly #sockets = new Set<Socket>();
  #closed = false;
  #wasReady = false;

  /** Throws UsageError for what is no address, and for credentials that may not go there. */
  constructor(
    readonly address: string,
    readonly timeouts: Timeouts,
    readonly budget: RetryBudget,
    readonly credentials: Credentials,
  ) {
    const { host, url } = location(address, credentials.tls !== undefined);
    checkCredentials(host, credentials);
    const apiKey = bearerOf(credentials);
    this.#session = new Http2SessionManager(url, PINGS, {
      settings: { initialWindowSize: MIB },
      createConnection: () => this.#held(openSocket(new URL(url), tlsOf(credentials))),
    });
    const transport = createGrpcTransport({
      baseUrl: url,
      sessionManager: heardSessions(this.#session),
      readMaxBytes: READ_MAX_BYTES,
      writeMaxBytes: WRITE_MAX_BYTES,
      // Token ids are small and compress badly.
      acceptCompression: [],
      interceptors:
        apiKey === undefined
          ? []
          : [
              (next) => (request) => {
                request.header.set("authorization", `Bearer ${apiKey}`);
                return next(request);
              },
            ],
    });
    this.runtime = createClient(RuntimeService, transport);
    this.capability = createClient(CapabilityService, transport);
    this.models = createClient(ModelService, transport);
    this.placement = createClient(PlacementService, transport);
  }

  /** Whether `close` was called. */
  get closed(): boolean {
    return this.#closed;
  }

  /**
   * Waits until the connection is open, at most `timeouts.connect` seconds.
   *
   * Throws NodeUnreachable, at once when the connection is refused; ClientClosed;
   * the signal's reason. A connection that is open costs nothing.
   */
  async connect(signal?: AbortSignal): Promise<void> {
    this.#checkOpen();
    signal?.throwIfAborted();
    const state = await abortable(this.#connected(), signal);
    this.#checkOpen();
    if (state === "late") {
      this.#session.abort();
      throw this.#unreachable(`no connection within ${this.timeouts.connect} s`);
    }
    if (state === "error") {
      const cause = this.#session.error();
      const detail = cause instanceof ConnectError ? cause.rawMessage : "the connection was lost";
      throw this.#unreachable(detail, cause);
    }
    this.#wasReady = true;
  }

  async #connected(): Promise<"open" | "idle" | "error" | "late"> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<"late">((resolve) => {
      timer = setTimeout(() => resolve("late"), this.timeouts.connect * 1000);
    });
    try {
      return await Promise.race([this.#session.connect(), late]);
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Makes `call` with a deadline of `timeout` seconds, retries included.
   *
   * An idempotent call is sent again when the network failed, under the budget,
   * and never to an address where no node was seen yet. Throws KakeyaError, whose
   * `attempts` tells how often the call was sent, and the signal's reason.
   */
  async unary<T>(
    call: (options: CallOptions) => Promise<T>,
    timeout: number,
    terms: CallTerms = {},
  ): Promise<T> {
    const deadline = performance.now() + timeout * 1000;
    this.budget.earn();
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.#attempt(call, deadline, terms.signal);
      } catch (error) {
        if (!(error instanceof KakeyaError)) {
          throw error;
        }
        error.attempts = attempt + 1;
        const seconds = pauseSeconds(attempt, Math.random());
        const again =
          terms.idempotent === true &&
          error instanceof NodeUnreachable &&
          this.#wasReady &&
          error.attempts < MAX_ATTEMPTS &&
          performance.now() + seconds * 1000 < deadline &&
          this.budget.spend();
        if (!again) {
          throw error;
        }
        await pause(seconds, terms.signal);
      }
    }
  }

  async #attempt<T>(
    call: (options: CallOptions) => Promise<T>,
    deadline: number,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    await this.connect(signal);
    const timeoutMs = Math.ceil(deadline - performance.now());
    if (timeoutMs <= 0) {
      throw deadlineExceeded(this.address);
    }
    try {
      return await call({ timeoutMs, ...(signal === undefined ? {} : { signal }) });
    } catch (error) {
      throw this.failure(error, signal);
    }
  }

  /**
   * What the failure of a call stands for: the signal's reason when that was
   * aborted, and a KakeyaError otherwise.
   */
  failure(error: unknown, signal?: AbortSignal): unknown {
    if (signal?.aborted) {
      return signal.reason;
    }
    if (this.#closed) {
      return new ClientClosed("the client was closed during the call");
    }
    const state = this.#session.state();
    const connected = state === "open" || state === "idle" || state === "verifying";
    const failure = kakeyaError(error, this.address, connected);
    return failure instanceof NodeUnreachable && failure !== error
      ? this.#unreachable(failure.metadata["detail"] ?? "", failure.cause)
      : failure;
  }

  #unreachable(detail: string, cause?: unknown): NodeUnreachable {
    return unreachable(this.address, detail, { cause, doubt: doubtOf(tlsOf(this.credentials)) });
  }

  /** Cancels the calls and closes the connection; a second close does nothing. */
  close(): void {
    if (!this.#closed) {
      this.#closed = true;
      // Before the session itself, which would tell the node of an error.
      for (const socket of this.#sockets) {
        socket.destroy();
      }
      this.#session.abort();
    }
  }

  #held(socket: Socket): Socket {
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    return socket;
  }

  #checkOpen(): void {
    if (this.#closed) {
      throw new ClientClosed("the client is closed");
    }
  }
}

function location(address: string, secure: boolean): { host: string; url: string } {
  const separator = address.lastIndexOf(":");
  const host = address.slice(0, Math.max(separator, 0));
  const port = address.slice(separator + 1);
  const url = `${secure ? "https" : "http"}://${address}`;
  if (!/^[^/?#@\s]+$/.test(host) || !/^\d{1,5}$/.test(port) || !URL.canParse(url)) {
    throw new UsageError(
      `an address is HOST:PORT, such as 127.0.0.1:7600, not ${JSON.stringify(address)}`,
    );
  }
  return { host, url };
}
