/** Server streams that end on the node when the application leaves them. */

import { abortable, LinkedAbort } from "./cancellation.js";
import type { Connection } from "./connection.js";
import { DeadlineExceeded, StreamConsumed } from "./errors.js";

/** How long a stream may take, in seconds, and what ends it early. */
export interface StreamTerms<MessageT> {
  /** To its first message, connecting and whatever comes before the call included. */
  readonly firstTimeout: number;
  /** Between two messages. */
  readonly idleTimeout: number;
  readonly signal?: AbortSignal | undefined;
  /** Whether what comes first goes on with the next message, and its timeout with it. */
  readonly hasMore?: ((message: MessageT) => boolean) | undefined;
}

/**
 * One call that answers with a stream of messages.
 *
 * Cancels the call when it is left, aborted, or silent for too long. One reader.
 */
export class MessageStream<MessageT> {
  readonly #connection: Connection;
  readonly #open: (signal: AbortSignal) => Promise<AsyncIterable<MessageT>>;
  readonly #terms: StreamTerms<MessageT>;
  readonly #cancel: LinkedAbort;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #messages: AsyncIterator<MessageT> | undefined;
  #timeout: number;
  #reading = false;
  #wasSilent = false;
  #ended = false;
  #left = false;
  #completed = false;

  /** `open` makes the call; it must give the signal on to it. */
  constructor(
    connection: Connection,
    open: (signal: AbortSignal) => Promise<AsyncIterable<MessageT>>,
    terms: StreamTerms<MessageT>,
  ) {
    this.#connection = connection;
    this.#open = open;
    this.#terms = terms;
    this.#timeout = terms.firstTimeout;
    this.#cancel = new LinkedAbort(terms.signal);
  }

  /** Whether nothing more will come. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Whether the node ended the stream, without an error. */
  get completed(): boolean {
    return this.#completed;
  }

  /**
   * The next message; null after the last one, or when the stream was left.
   *
   * Throws KakeyaError, DeadlineExceeded when the node is silent for too long, and
   * the signal's reason.
   */
  async read(): Promise<MessageT | null> {
    if (this.#ended) {
      return null;
    }
    this.#listen();
    try {
      const messages = (this.#messages ??= await this.#begin());
      // A transport that loses its connection just then may never say that a call was cancelled.
      const next = await abortable(messages.next(), this.#cancel.signal);
      if (next.done !== true) {
        this.#heard(next.value);
        return next.value;
      }
    } catch (error) {
      return this.#failed(error);
    } finally {
      this.#reading = false;
    }
    if (!this.#left) {
      this.#completed = true;
      this.#end();
    }
    return null;
  }

  /** Cancels the call, also on the node; a second time does nothing. */
  leave(): void {
    if (!this.#ended) {
      this.#left = true;
      this.#end();
      this.#cancel.abort();
      // Reading on is what makes the transport let go of its timers.
      this.#messages?.next().catch(() => undefined);
    }
  }

  async #begin(): Promise<AsyncIterator<MessageT>> {
    const signal = this.#cancel.signal;
    await this.#connection.connect(signal);
    return (await this.#open(signal))[Symbol.asyncIterator]();
  }

  #failed(error: unknown): null {
    if (this.#left) {
      return null;
    }
    this.#end();
    this.#cancel.abort();
    if (this.#wasSilent) {
      const { address } = this.#connection;
      throw new DeadlineExceeded(`${address} was silent for ${this.#timeout} s`, {
        metadata: { address },
      });
    }
    throw this.#connection.failure(error, this.#terms.signal);
  }

  /** Counts silence from here; one timer serves all reads of the same timeout. */
  #listen(): void {
    this.#reading = true;
    if (this.#silence !== undefined) {
      this.#silence.refresh();
      return;
    }
    this.#silence = setTimeout(() => {
      // An application that does not read hears nothing.
      if (this.#reading) {
        this.#wasSilent = true;
        this.#cancel.abort();
      }
    }, this.#timeout * 1000);
  }

  #heard(message: MessageT): void {
    const { idleTimeout, hasMore } = this.#terms;
    if (this.#timeout !== idleTimeout && hasMore?.(message) !== true) {
      this.#timeout = idleTimeout;
      clearTimeout(this.#silence);
      this.#silence = undefined;
    }
  }

  #end(): void {
    this.#ended = true;
    this.#cancel.unlink();
    clearTimeout(this.#silence);
  }
}

/** What an iteration needs to know of its stream. */
export interface MessageSource<MessageT> {
  /** Whether nothing more will come. */
  readonly ended: boolean;
  /** Whether the node ended the stream, without an error. */
  readonly completed: boolean;
  read(): Promise<MessageT | null>;
  leave(): void;
}

/**
 * What an application iterates, once. Leaving it ends the call on the node.
 *
 * `break`, an exception, `return`, `leave`, an aborted signal and the end of an
 * `await using` all leave it; nothing is sent before the iteration begins.
 */
export abstract class ServerStream<MessageT, ItemT> implements AsyncIterable<ItemT> {
  #source: MessageSource<MessageT> | undefined;
  #started = false;

  /** The stream to iterate; called when the iteration begins. */
  protected abstract open(): MessageSource<MessageT>;

  /** The item of a message; null when it has none. */
  protected abstract take(message: MessageT): ItemT | null;

  /** Called after the last message of a stream that the node ended; may throw. */
  protected finish(): void {}

  /** Throws StreamConsumed the second time, and what `open` throws. */
  [Symbol.asyncIterator](): AsyncIterator<ItemT, undefined> {
    if (this.#started) {
      throw new StreamConsumed("a stream is iterated once; start another one");
    }
    const source = this.open();
    this.#started = true;
    this.#source = source;
    return {
      next: () => this.#next(source),
      return: async () => {
        source.leave();
        return { done: true, value: undefined };
      },
      throw: async (error: unknown) => {
        source.leave();
        throw error;
      },
    };
  }

  /** Leaves the stream; a second time does nothing. */
  leave(): void {
    this.#started = true;
    this.#source?.leave();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.leave();
  }

  async #next(source: MessageSource<MessageT>): Promise<IteratorResult<ItemT, undefined>> {
    while (!source.ended) {
      const message = await source.read();
      if (message === null) {
        if (source.completed) {
          this.finish();
        }
        break;
      }
      try {
        const item = this.take(message);
        if (item !== null) {
          return { done: false, value: item };
        }
      } catch (error) {
        source.leave();
        throw error;
      }
    }
    return { done: true, value: undefined };
  }
}
