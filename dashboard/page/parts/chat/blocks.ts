/**
 * Markdown by blocks: headings, paragraphs, lists, quotes, tables, code. Pure, and linear in the
 * length of the text for each level of quotes and lists, of which there are a few at most.
 */

export type Block =
  | { type: "paragraph"; text: string }
  | { type: "heading"; level: number; text: string }
  /** `isOpen` while its end has not come. */
  | { type: "code"; language: string; text: string; isOpen: boolean }
  | { type: "quote"; blocks: Block[] }
  | { type: "list"; isOrdered: boolean; start: number; items: Block[][] }
  | { type: "table"; columns: ("start" | "center" | "end")[]; head: string[]; rows: string[][] }
  | { type: "rule" };

/** Quotes and lists within each other, beyond which lines are paragraphs. */
const DEPTH = 6;
/** Columns of a table, beyond which it is none. */
const COLUMNS = 64;

const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( {1,4}|\t|$)(?! *$)/;
const RULE = /^ {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$/;

export function blocks(text: string): Block[] {
  return new Lines(text.replaceAll("\r", "").split("\n"), 0).parse();
}

class Lines {
  readonly #lines: readonly string[];
  readonly #depth: number;
  readonly #blocks: Block[] = [];
  #at = 0;

  constructor(lines: readonly string[], depth: number) {
    this.#lines = lines;
    this.#depth = depth;
  }

  parse(): Block[] {
    while (this.#at < this.#lines.length) {
      if (isBlank(this.#line)) this.#at += 1;
      else this.#block();
    }
    return this.#blocks;
  }

  get #line(): string {
    return this.#lines[this.#at] ?? "";
  }

  #block(): void {
    const line = this.#line;
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (fence !== null) this.#code(fence[1] ?? "", fence[2] ?? "");
    else if (heading !== null) {
      const text = (heading[2] ?? "").replace(/(?:^|[ \t])#+$/, "").trim();
      this.#put({ type: "heading", level: heading[1]?.length ?? 1, text });
    } else if (isRule(line)) this.#put({ type: "rule" });
    else if (this.#depth < DEPTH && QUOTE.test(line)) this.#quote();
    else if (this.#depth < DEPTH && ITEM.test(line)) this.#list();
    else if (this.#isTable()) this.#table();
    else this.#paragraph();
  }

  #put(block: Block): void {
    this.#blocks.push(block);
    this.#at += 1;
  }

  #code(mark: string, info: string): void {
    const indent = this.#line.length - this.#line.trimStart().length;
    const taken: string[] = [];
    let isOpen = true;
    for (this.#at += 1; this.#at < this.#lines.length; this.#at += 1) {
      const bare = this.#line.trim();
      if (bare.length >= mark.length && bare === (mark[0] ?? "").repeat(bare.length)) {
        isOpen = false;
        this.#at += 1;
        break;
      }
      taken.push(withoutIndent(this.#line, indent));
    }
    const language = /^[\w+#.-]{1,24}/.exec(info.trim())?.[0] ?? "";
    this.#blocks.push({ type: "code", language, text: taken.join("\n"), isOpen });
  }

  #quote(): void {
    const inner: string[] = [];
    for (; QUOTE.test(this.#line); this.#at += 1) inner.push(this.#line.replace(QUOTE, ""));
    this.#blocks.push({ type: "quote", blocks: new Lines(inner, this.#depth + 1).parse() });
  }

  #list(): void {
    const first = this.#line.trimStart();
    const isOrdered = /^\d/.test(first);
    const items: Block[][] = [];
    for (;;) {
      const found = ITEM.exec(this.#line);
      if (found === null || isRule(this.#line)) break;
      if (/^\d/.test(found[2] ?? "") !== isOrdered) break;
      items.push(new Lines(this.#item(found[0].length), this.#depth + 1).parse());
    }
    const start = isOrdered ? Number.parseInt(first, 10) : 1;
    this.#blocks.push({ type: "list", isOrdered, start, items });
  }

  /** The lines of one item, whose text begins at column `indent`. */
  #item(indent: number): string[] {
    const own = [this.#line.slice(indent)];
    let afterBlank = false;
    // A line of an item's code is its own wherever it begins.
    let fence = FENCE.exec(own[0] ?? "")?.[1] ?? "";
    for (this.#at += 1; this.#at < this.#lines.length; this.#at += 1) {
      const line = this.#line;
      const isIn = line.startsWith(" ".repeat(Math.min(indent, 2))) || line.startsWith("\t");
      if (isBlank(line)) {
        afterBlank = true;
        own.push("");
        continue;
      }
      if (!isIn && fence === "" && (afterBlank || this.#begins(line))) break;
      if (!isIn && fence !== "" && ITEM.test(line)) break;
      const text = withoutIndent(line.replace(/^\t/, "    "), indent);
      const mark = FENCE.exec(text)?.[1] ?? "";
      if (fence === "") fence = mark;
      else if (text.trim().startsWith(fence)) fence = "";
      own.push(text);
      afterBlank = false;
    }
    return own;
  }

  /** Whether a line ends the paragraph before it. */
  #begins(line: string): boolean {
    return (
      FENCE.test(line) ||
      HEADING.test(line) ||
      isRule(line) ||
      (this.#depth < DEPTH && (QUOTE.test(line) || ITEM.test(line)))
    );
  }

  #isTable(): boolean {
    return this.#line.includes("|") && columnsOf(this.#lines[this.#at + 1] ?? "").length > 0;
  }

  #table(): void {
    const head = cells(this.#line);
    const columns = columnsOf(this.#lines[this.#at + 1] ?? "");
    const rows: string[][] = [];
    for (this.#at += 2; this.#line.includes("|") && !isBlank(this.#line); this.#at += 1) {
      rows.push(cells(this.#line).slice(0, columns.length));
    }
    this.#blocks.push({ type: "table", columns, head: head.slice(0, columns.length), rows });
  }

  #paragraph(): void {
    const own = [this.#line.trim()];
    for (this.#at += 1; this.#at < this.#lines.length; this.#at += 1) {
      const line = this.#line;
      if (isBlank(line) || this.#begins(line) || this.#isTable()) break;
      own.push(line.trim());
    }
    this.#blocks.push({ type: "paragraph", text: own.join("\n") });
  }
}

function isBlank(line: string): boolean {
  return line.trim() === "";
}

/** Long lines are none: the expression looks at each place once for each way to group it. */
function isRule(line: string): boolean {
  return line.length <= 200 && RULE.test(line);
}

function withoutIndent(line: string, most: number): string {
  let indent = 0;
  while (indent < most && line[indent] === " ") indent += 1;
  return line.slice(indent);
}

/** The cells of a row; an escaped bar is a bar. */
function cells(line: string): string[] {
  const bare = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return bare
    .replaceAll("\\|", "\u0000")
    .split("|", COLUMNS + 1)
    .map((cell) => cell.trim().replaceAll("\u0000", "|"));
}

/** How the columns of a table are set, of the line below its head; none for another line. */
function columnsOf(line: string): ("start" | "center" | "end")[] {
  if (!line.includes("-")) return [];
  const marks = cells(line);
  if (marks.length > COLUMNS || !marks.every((mark) => /^:?-+:?$/.test(mark))) return [];
  if (marks.length === 1 && !line.includes("|")) return [];
  return marks.map((mark) =>
    mark.endsWith(":") ? (mark.startsWith(":") ? "center" : "end") : "start",
  );
}
