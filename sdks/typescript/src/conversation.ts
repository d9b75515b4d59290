/**
 * A conversation as one history of token ids: what each turn keeps of it, and what it appends.
 *
 * A turn renders the whole conversation with the model's template. Where that text goes on from
 * the text of the history, only the ids of the rest are appended; a template that writes earlier
 * turns anew (one that trims an answer, say) makes the history go back to the longest prefix that
 * still holds.
 */

/** What was said, and by whom: "system", "user" or "assistant". */
export interface Message {
  readonly role: string;
  readonly content: string;
}

/** Text to ids and back, special tokens as text included. */
interface Codec {
  encode(text: string): number[];
  decode(tokenIds: readonly number[]): string;
}

/** The text of a conversation, up to where the next answer begins. */
export type Render = (messages: readonly Message[]) => string;

/** What becomes of the history: its first `keep` ids stay, then come `append`. */
export interface HistoryTurn {
  readonly keep: number;
  readonly append: readonly number[];
}

/** The history's first `length` ids are those of `text`. */
interface Mark {
  readonly length: number;
  readonly text: string;
}

/** Turns joined plainly, for a model without a template: each ends with a line's end. */
export function plainText(messages: readonly Message[]): string {
  return messages.map((message) => `${message.content}\n`).join("");
}

/**
 * Messages, and the ids that stand for them.
 *
 * `ask` says what to do with the session's history, `answered` what the verifier committed
 * since; one follows the other.
 */
export class Conversation {
  readonly #codec: Codec;
  readonly #render: Render;
  readonly #before: readonly Message[];
  #messages: Message[] = [];
  #ids: readonly number[] = [];
  #marks: readonly Mark[] = [{ length: 0, text: "" }];

  constructor(codec: Codec, render: Render, system = "") {
    this.#codec = codec;
    this.#render = render;
    this.#before = system === "" ? [] : [{ role: "system", content: system }];
  }

  /** What was said, oldest first, the system's words before. */
  get messages(): readonly Message[] {
    return [...this.#before, ...this.#messages];
  }

  /**
   * The person's next message: what the session, which holds `history`, keeps and appends.
   *
   * Throws what `render` throws, and is as before then.
   */
  ask(content: string, history: readonly number[]): HistoryTurn {
    this.#messages.push({ role: "user", content });
    try {
      return this.#continue(history);
    } catch (error) {
      this.#messages.pop();
      throw error;
    }
  }

  /**
   * What the verifier committed after the latest turn, and the text that was said of it; may
   * have been stopped.
   */
  answered(tokenIds: readonly number[], said: string): void {
    this.#messages.push({ role: "assistant", content: said });
    this.#ids = [...this.#ids, ...tokenIds];
    const text = (this.#marks.at(-1)?.text ?? "") + this.#codec.decode(tokenIds);
    this.#marks = [...this.#marks, { length: this.#ids.length, text }];
  }

  /** Forgets the latest question and its answer; the question, null when there is none. */
  takeBack(): Message | null {
    for (;;) {
      const message = this.#messages.pop();
      if (message === undefined || message.role === "user") {
        return message ?? null;
      }
    }
  }

  #continue(history: readonly number[]): HistoryTurn {
    const text = this.#render(this.messages);
    const shared = sharedLength(this.#ids, history);
    let held = this.#marks.filter((each) => each.length <= shared && text.startsWith(each.text));
    const mark = held.at(-1) ?? { length: 0, text: "" };
    let turn: HistoryTurn = {
      keep: mark.length,
      append: this.#codec.encode(text.slice(mark.text.length)),
    };
    if (mark.length < history.length) {
      // The text as a whole may have longer a prefix in ids than the marks know.
      const whole = this.#codec.encode(text);
      const keep = sharedLength(whole, history);
      if (keep > mark.length) {
        held = held.filter((each) => each.length <= keep);
        turn = { keep, append: whole.slice(keep) };
      }
    }
    this.#ids = [...history.slice(0, turn.keep), ...turn.append];
    this.#marks = [...held, { length: this.#ids.length, text }];
    return turn;
  }
}

/** How many ids both begin with. */
function sharedLength(one: readonly number[], other: readonly number[]): number {
  const shortest = Math.min(one.length, other.length);
  for (let index = 0; index < shortest; index += 1) {
    if (one[index] !== other[index]) {
      return index;
    }
  }
  return shortest;
}
