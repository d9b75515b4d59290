/** From a stream of ids to a stream of text. */

const REPLACEMENT = "\u{fffd}";

/**
 * Turns a stream of ids into a stream of text.
 *
 * What was returned is never taken back: text is held until it ends with a whole
 * character, because one character may take several ids. The pieces and `flush`
 * together are `decode` of all ids, but for bytes that are no character: some
 * tokenizers let one spoil its neighbours.
 *
 * `decode` is called on the ids since the last two returns only, so that the cost
 * of an id does not grow with the text.
 */
export class Detokenizer {
  readonly #decode: (tokenIds: readonly number[]) => string;
  // Ids whose text was returned last give the context for spaces between words;
  // `#returned` of `#ids` are such ids.
  #ids: number[] = [];
  #returned = 0;

  constructor(decode: (tokenIds: readonly number[]) => string) {
    this.#decode = decode;
  }

  /** The text that `tokenIds` complete; empty while a character is incomplete. */
  push(tokenIds: Iterable<number>): string {
    this.#ids.push(...tokenIds);
    const text = this.#pending();
    if (text === "" || text.endsWith(REPLACEMENT)) {
      return "";
    }
    this.#ids = this.#ids.slice(this.#returned);
    this.#returned = this.#ids.length;
    return text;
  }

  /** The rest, with U+FFFD for what never became a character; starts anew. */
  flush(): string {
    const text = this.#pending();
    this.#ids = [];
    this.#returned = 0;
    return text;
  }

  #pending(): string {
    if (this.#returned === this.#ids.length) {
      return "";
    }
    const known = this.#decode(this.#ids.slice(0, this.#returned));
    const text = this.#decode(this.#ids);
    return text.startsWith(known)
      ? text.slice(known.length)
      : this.#decode(this.#ids.slice(this.#returned));
  }
}
