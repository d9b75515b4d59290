/** An answer as text: pieces, as its tokens commit. */

import { SessionBusy, StreamConsumed, UnexpectedError } from "./errors.js";
import type { GenerationDone } from "./generated/values.js";
import type { Generation } from "./generation.js";
import type { TextCodec } from "./text/codec.js";
import type { Detokenizer } from "./text/detokenizer.js";
import type { Tokens } from "./values/session.js";

/** Tokens of an answer that is not told another bound. */
export const LONGEST_ANSWER = 2048;

/** The text of a stream of ids, but for special ones and those that end an answer. */
export class Words {
  readonly #stream: Detokenizer;
  readonly #stops: ReadonlySet<number>;
  #text = "";

  constructor(codec: TextCodec, stopTokenIds: Iterable<number>) {
    this.#stream = codec.detokenizer({ skipSpecialTokens: true });
    this.#stops = new Set(stopTokenIds);
  }

  /** All that was returned. */
  get text(): string {
    return this.#text;
  }

  /** The text that the ids complete; empty while a character is incomplete. */
  push(tokenIds: readonly number[]): string {
    return this.#kept(this.#stream.push(tokenIds.filter((each) => !this.#stops.has(each))));
  }

  /** The rest, with U+FFFD for a character that the end has cut. */
  flush(): string {
    return this.#kept(this.#stream.flush());
  }

  #kept(piece: string): string {
    this.#text += piece;
    return piece;
  }
}

/** A generation that was asked for and not begun, and what makes text of it. */
export interface Begun {
  readonly generation: Generation;
  readonly words: Words;
}

/** What is behind an answer. */
export interface Speech {
  /** Asks for the answer; throws SessionBusy while another one comes. */
  begin(answer: Answer): Promise<Begun>;
  /** Called once when nothing more will come. */
  end(): void;
}

/** One answer at a time: it has the floor until it ended or was left. */
export class Floor {
  #answer: Answer | undefined;

  /** Throws SessionBusy while an answer comes. */
  check(): void {
    if (this.#answer?.ended === false) {
      throw new SessionBusy("an answer still comes: read it to its end, or leave its iterator");
    }
  }

  /** Gives the floor to this answer. Throws SessionBusy. */
  take(answer: Answer): void {
    this.check();
    this.#answer = answer;
  }
}

/**
 * Text as it commits: `for await (const piece of chat.say("..."))`.
 *
 * A piece is some whole characters, never empty; special tokens, and what ended the
 * answer, are none of it. Iterated once. Nothing is sent before the iteration begins;
 * leaving it by `break`, `return`, an exception, `leave` or an aborted signal stops the
 * work on the node within a block.
 */
export class Answer implements AsyncIterable<string> {
  readonly #speech: Speech;
  #begun: Begun | undefined;
  #tokens: AsyncIterator<Tokens> | undefined;
  #started = false;
  #begins = false;
  #left = false;
  #ended = false;

  constructor(speech: Speech) {
    this.#speech = speech;
  }

  /** How the answer ended, with its statistics; null until the iteration came to it. */
  get done(): GenerationDone | null {
    return this.#begun?.generation.done ?? null;
  }

  /** Whether nothing more will come. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Waits for the whole answer. Throws what the iteration throws. */
  async text(): Promise<string> {
    let text = "";
    for await (const piece of this) {
      text += piece;
    }
    if (this.done === null) {
      throw new UnexpectedError("the answer was left before its end");
    }
    return text;
  }

  /** Leaves the answer; a second time does nothing. */
  leave(): void {
    this.#started = true;
    this.#left = true;
    // What asks at this moment comes to its end first: positions are known then.
    if (!this.#begins) {
      this.#begun?.generation.leave();
      this.#end();
    }
  }

  /** Throws StreamConsumed the second time. */
  [Symbol.asyncIterator](): AsyncIterator<string, undefined> {
    if (this.#started) {
      throw new StreamConsumed("an answer is read once: say something again for another one");
    }
    this.#started = true;
    return {
      next: async () => {
        const piece = await this.#next();
        return piece === "" ? { done: true, value: undefined } : { done: false, value: piece };
      },
      return: async () => {
        this.leave();
        return { done: true, value: undefined };
      },
      throw: async (error: unknown) => {
        this.leave();
        throw error;
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.leave();
  }

  /** The next piece; empty at the end. */
  async #next(): Promise<string> {
    let piece: string;
    try {
      piece = await this.#read();
    } catch (error) {
      this.#end();
      throw error;
    }
    if (piece === "") {
      this.#end();
    }
    return piece;
  }

  async #read(): Promise<string> {
    if (this.#left || this.#ended) {
      return "";
    }
    const { generation, words } = (this.#begun ??= await this.#begin());
    // Whoever left meanwhile wants no generation.
    if (this.#hasLeft()) {
      return "";
    }
    this.#tokens ??= generation[Symbol.asyncIterator]();
    for (;;) {
      const next = await this.#tokens.next();
      if (next.done === true) {
        break;
      }
      const piece = words.push(next.value.tokenIds);
      if (piece !== "") {
        return piece;
      }
    }
    return this.#hasLeft() || this.done === null ? "" : words.flush();
  }

  async #begin(): Promise<Begun> {
    this.#begins = true;
    try {
      return await this.#speech.begin(this);
    } finally {
      this.#begins = false;
    }
  }

  #hasLeft(): boolean {
    return this.#left;
  }

  #end(): void {
    if (!this.#ended) {
      this.#ended = true;
      this.#speech.end();
    }
  }
}
