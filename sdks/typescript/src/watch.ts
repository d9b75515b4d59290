/** Watches: streams of what changes, until the iteration is left. */

import type { Connection } from "./connection.js";
import { MessageStream, ServerStream, type MessageSource } from "./streams.js";

/** How the calls of one watch are made. */
export interface WatchCall<MessageT, EventT> {
  /** Makes the call, with the signal and the deadline given on to it. */
  readonly open: (options: { signal: AbortSignal; timeoutMs: number }) => AsyncIterable<MessageT>;
  /** The event of a message; null for a kind that is newer than this client. */
  readonly event: (message: MessageT) => EventT | null;
  /** Whether a further part of the state follows a message at once; never unless given. */
  readonly hasMore?: (message: MessageT) => boolean;
}

/**
 * What changes, iterated once; leaving the iteration ends the watch on the node.
 *
 * Ends with DeadlineExceeded after `Timeouts.watch`, with WatcherTooSlow when the
 * application falls behind; watch again after both.
 */
export class Watch<EventT, MessageT = unknown> extends ServerStream<MessageT, EventT> {
  readonly #connection: Connection;
  readonly #call: WatchCall<MessageT, EventT>;
  readonly #signal: AbortSignal | undefined;

  constructor(connection: Connection, call: WatchCall<MessageT, EventT>, signal?: AbortSignal) {
    super();
    this.#connection = connection;
    this.#call = call;
    this.#signal = signal;
  }

  protected override open(): MessageSource<MessageT> {
    const { timeouts } = this.#connection;
    const timeoutMs = Math.ceil(timeouts.watch * 1000);
    return new MessageStream(
      this.#connection,
      async (signal) => this.#call.open({ signal, timeoutMs }),
      {
        firstTimeout: timeouts.unary,
        idleTimeout: timeouts.watch,
        signal: this.#signal,
        hasMore: this.#call.hasMore,
      },
    );
  }

  protected override take(message: MessageT): EventT | null {
    return this.#call.event(message);
  }
}
