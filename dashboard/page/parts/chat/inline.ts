/**
 * Markdown within a paragraph: emphasis, code, links, line ends. What it gives is a tree, never
 * HTML: tags of the text stay text. A link leads to http or https, or is none; images are links,
 * since the page fetches nothing from elsewhere. Pure, and linear in the length of the text.
 */

export type Inline =
  | { type: "text"; text: string }
  | { type: "code"; text: string }
  | { type: "strong" | "emphasis" | "deleted"; children: Inline[] }
  | { type: "link"; href: string; children: Inline[] }
  | { type: "break" };

/** Emphasis and links within each other, beyond which the text stays as it is. */
const DEPTH = 6;
/** Longest address that is a link, in characters. */
const HREF_LIMIT = 2048;
/** Brackets within each other in the address of a link. */
const BRACKETS = 8;

const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}_]/u;
/** What does not belong to an address at its end in running text. */
const TRAILING = /[.,;:!?'"*_~)\]]/;

export function inline(text: string): Inline[] {
  return new Parser(text, 0).parse();
}

/** The address where it is one that a link may lead to; empty otherwise. */
export function safeHref(address: string): string {
  if (address.length > HREF_LIMIT || !/^https?:\/\/[^\s]+$/i.test(address)) return "";
  if (!URL.canParse(address)) return "";
  const url = new URL(address);
  // A name before the host reads like the host that it is not.
  if (url.username !== "" || url.password !== "") return "";
  return url.href;
}

class Parser {
  readonly #text: string;
  readonly #depth: number;
  readonly #parts: Inline[] = [];
  #plain = "";
  /** By mark: behind this place nothing closes it any more. */
  readonly #unclosed = new Map<string, number>();
  /** The next "](" from some place on, and the last "[" before it. */
  #label = { from: -1, close: -1, open: -1 };

  constructor(text: string, depth: number) {
    this.#text = text;
    this.#depth = depth;
  }

  parse(): Inline[] {
    let at = 0;
    while (at < this.#text.length) at = this.#step(at);
    this.#flush();
    return this.#parts;
  }

  /** Reads what begins at `at`; answers where to go on. */
  #step(at: number): number {
    const letter = this.#text[at] ?? "";
    switch (letter) {
      case "\\":
        return this.#escape(at);
      case "`":
        return this.#code(at);
      case "*":
      case "_":
      case "~":
        return this.#emphasis(at, letter);
      case "!":
      case "[":
        return this.#link(at);
      case "<":
        return this.#angle(at);
      case "h":
      case "H":
        return this.#address(at);
      case "\n":
        this.#plain = this.#plain.replace(/ +$/, "");
        return this.#add({ type: "break" }, at + 1);
      default:
        return this.#literal(letter, at + 1);
    }
  }

  #literal(text: string, next: number): number {
    this.#plain += text;
    return next;
  }

  #add(part: Inline, next: number): number {
    this.#flush();
    this.#parts.push(part);
    return next;
  }

  #flush(): void {
    if (this.#plain !== "") this.#parts.push({ type: "text", text: this.#plain });
    this.#plain = "";
  }

  #inner(text: string): Inline[] {
    if (this.#depth >= DEPTH) return [{ type: "text", text }];
    return new Parser(text, this.#depth + 1).parse();
  }

  #escape(at: number): number {
    const next = this.#text[at + 1] ?? "";
    return PUNCTUATION.test(next) ? this.#literal(next, at + 2) : this.#literal("\\", at + 1);
  }

  /** Between runs of as many backquotes. */
  #code(at: number): number {
    const mark = this.#run(at, "`");
    const begin = at + mark.length;
    const end = this.#find(mark, begin, (place) => this.#run(place, "`").length === mark.length);
    if (end < 0) return this.#literal(mark, begin);
    const text = this.#text.slice(begin, end).replaceAll("\n", " ");
    const padded = text.length > 2 && text.startsWith(" ") && text.endsWith(" ");
    const code = padded && text.trim() !== "" ? text.slice(1, -1) : text;
    return this.#add({ type: "code", text: code }, end + mark.length);
  }

  /** `*one*`, `**two**`, `_one_`, `__two__`, `~~two~~`. */
  #emphasis(at: number, letter: "*" | "_" | "~"): number {
    const run = this.#run(at, letter);
    const mark = letter.repeat(Math.min(2, run.length));
    const begin = at + mark.length;
    const before = this.#text[at - 1] ?? " ";
    const after = this.#text[begin] ?? " ";
    const opens =
      /\S/.test(after) &&
      !(letter === "_" && WORD.test(before)) &&
      !(letter === "~" && run === "~");
    const end = opens ? this.#find(mark, begin, (place) => this.#closes(place, mark)) : -1;
    if (end <= begin) return this.#literal(mark, begin);
    const type = letter === "~" ? "deleted" : mark.length === 2 ? "strong" : "emphasis";
    const children = this.#inner(this.#text.slice(begin, end));
    return this.#add({ type, children }, end + mark.length);
  }

  #closes(place: number, mark: string): boolean {
    if (/\s/.test(this.#text[place - 1] ?? " ") || this.#text[place - 1] === "\\") return false;
    if (mark.startsWith("_") && WORD.test(this.#text[place + mark.length] ?? " ")) return false;
    // One mark is not the half of two, three are one within two.
    const run = this.#run(place, mark[0] ?? "").length;
    return mark.length === 1 ? run !== 2 : run >= 2;
  }

  /** The first place from `from` on at which `mark` closes; -1 for none. */
  #find(mark: string, from: number, closes: (place: number) => boolean): number {
    // Whether a place closes does not depend on where it was opened: none is searched twice in vain.
    if (from >= (this.#unclosed.get(mark) ?? Infinity)) return -1;
    let place = this.#text.indexOf(mark, from);
    while (place >= 0) {
      const run = this.#run(place, mark[0] ?? "");
      if (closes(place)) {
        // Of three marks the last two close two.
        return mark.length === 2 && mark[0] !== "`" ? place + run.length - 2 : place;
      }
      place = this.#text.indexOf(mark, place + run.length);
    }
    this.#unclosed.set(mark, Math.min(from, this.#unclosed.get(mark) ?? Infinity));
    return -1;
  }

  /** The equal letters from `at` on. */
  #run(at: number, letter: string): string {
    let end = at;
    while (this.#text[end] === letter) end += 1;
    return this.#text.slice(at, end);
  }

  /** `[words](address)`; an image is a link to it. */
  #link(at: number): number {
    const letter = this.#text[at] ?? "";
    const open = letter === "!" ? at + 1 : at;
    if (this.#text[open] !== "[" || this.#labelOf(open).open !== open) {
      return this.#literal(letter, at + 1);
    }
    const { close } = this.#label;
    const target = this.#target(close + 2);
    const href = target === null ? "" : safeHref(target.address);
    if (target === null || href === "") return this.#literal(letter, at + 1);
    const words = this.#text.slice(open + 1, close);
    const children = words === "" ? [{ type: "text" as const, text: href }] : this.#inner(words);
    return this.#add({ type: "link", href, children: unlinked(children) }, target.end);
  }

  /** The next "](" behind `open`, and the "[" that it belongs to. */
  #labelOf(open: number): { close: number; open: number } {
    if (this.#label.from > open || (this.#label.close >= 0 && this.#label.close < open)) {
      this.#label = { from: -1, close: -1, open: -1 };
    }
    if (this.#label.from < 0) {
      const close = this.#text.indexOf("](", open);
      const last = close < 0 ? -1 : this.#text.lastIndexOf("[", close);
      this.#label = { from: open, close, open: last };
    }
    return this.#label;
  }

  /** The address that begins at `from`, up to its bracket; null for none. */
  #target(from: number): { address: string; end: number } | null {
    let depth = 0;
    const most = Math.min(this.#text.length, from + HREF_LIMIT);
    for (let at = from; at < most; at += 1) {
      const letter = this.#text[at] ?? "";
      if (letter === "(" && depth === BRACKETS) return null;
      else if (letter === "(") depth += 1;
      else if (letter === ")" && depth > 0) depth -= 1;
      else if (letter === ")") return { address: this.#text.slice(from, at), end: at + 1 };
      else if (/\s/.test(letter)) {
        // What follows is a title.
        const end = this.#text.slice(at, most).search(/["')]\)|^\s*\)/);
        if (end < 0) return null;
        const address = this.#text.slice(from, at);
        return { address, end: this.#text.indexOf(")", at + end + 1) + 1 };
      }
    }
    return null;
  }

  /** `<https://...>` and `<br>`; all else is text. */
  #angle(at: number): number {
    const brief = this.#text.slice(at, at + HREF_LIMIT);
    const lineEnd = /^<br *\/?>/i.exec(brief);
    if (lineEnd !== null) return this.#add({ type: "break" }, at + lineEnd[0].length);
    const found = /^<(https?:\/\/[^\s<>]+)>/i.exec(brief);
    const href = found === null ? "" : safeHref(found[1] ?? "");
    if (found === null || href === "") return this.#literal("<", at + 1);
    const children: Inline[] = [{ type: "text", text: found[1] ?? "" }];
    return this.#add({ type: "link", href, children }, at + found[0].length);
  }

  /** An address that stands in the text as it is. */
  #address(at: number): number {
    const letter = this.#text[at] ?? "";
    const begins = /^https?:\/\//i.test(this.#text.slice(at, at + 8));
    if (!begins || WORD.test(this.#text[at - 1] ?? " ")) return this.#literal(letter, at + 1);
    const found = /^[^\s<>"`|]+/.exec(this.#text.slice(at, at + HREF_LIMIT));
    let address = found?.[0] ?? "";
    while (TRAILING.test(address.at(-1) ?? "")) {
      // A bracket that was opened within the address belongs to it.
      if (address.endsWith(")") && count(address, "(") >= count(address, ")")) break;
      address = address.slice(0, -1);
    }
    const href = safeHref(address);
    if (href === "") return this.#literal(letter, at + 1);
    return this.#add(
      { type: "link", href, children: [{ type: "text", text: address }] },
      at + address.length,
    );
  }
}

function count(text: string, letter: string): number {
  return text.split(letter).length - 1;
}

/** A link has none within it. */
function unlinked(parts: readonly Inline[]): Inline[] {
  return parts.flatMap((part): Inline[] => {
    if (part.type === "link") return unlinked(part.children);
    return "children" in part ? [{ ...part, children: unlinked(part.children) }] : [part];
  });
}
