import { describe, expect, it, test } from "vitest";

import { blocks, type Block } from "./blocks";
import { inline, safeHref, type Inline } from "./inline";

const text = (words: string): Inline => ({ type: "text", text: words });

function plain(parts: readonly Inline[]): string {
  return parts
    .map((part) =>
      part.type === "break" ? " " : "children" in part ? plain(part.children) : part.text,
    )
    .join("");
}

describe("within a paragraph", () => {
  it.each<[string, Inline[]]>([
    ["plain", [text("plain")]],
    [
      "**a *b* c** d",
      [
        {
          type: "strong",
          children: [text("a "), { type: "emphasis", children: [text("b")] }, text(" c")],
        },
        text(" d"),
      ],
    ],
    ["***a***", [{ type: "strong", children: [{ type: "emphasis", children: [text("a")] }] }]],
    ["`a * b`", [{ type: "code", text: "a * b" }]],
    ["``a ` b``", [{ type: "code", text: "a ` b" }]],
    ["~~old~~ ~one~", [{ type: "deleted", children: [text("old")] }, text(" ~one~")]],
    ["snake_case_name 2 * 3 * 4", [text("snake_case_name 2 * 3 * 4")]],
    ["\\*no\\* C:\\path", [text("*no* C:\\path")]],
    ["a  \nb<br>c", [text("a"), { type: "break" }, text("b"), { type: "break" }, text("c")]],
    [
      "[w **x**](https://a.b/c_(d))!",
      [
        {
          type: "link",
          href: "https://a.b/c_(d)",
          children: [text("w "), { type: "strong", children: [text("x")] }],
        },
        text("!"),
      ],
    ],
    [
      'see https://a.b/x?y=1, or [z](http://q.r "title").',
      [
        text("see "),
        { type: "link", href: "https://a.b/x?y=1", children: [text("https://a.b/x?y=1")] },
        text(", or "),
        { type: "link", href: "http://q.r/", children: [text("z")] },
        text("."),
      ],
    ],
  ])("%s", (source, parts) => {
    expect(inline(source)).toEqual(parts);
  });

  it("has no link within a link, and images are links", () => {
    const [image] = inline("![a https://b.c](https://d.e/f.png)");
    expect(image).toEqual({
      type: "link",
      href: "https://d.e/f.png",
      children: [text("a "), text("https://b.c")],
    });
  });
});

describe("by blocks", () => {
  it("reads what models write", () => {
    const found = blocks(
      [
        "# Title #",
        "One",
        "two",
        "",
        "- a",
        "  - b",
        "- c",
        "",
        "  more",
        "3. three",
        "> quoted",
        "> - in",
        "```py",
        "def f():",
        "    return 1",
        "```",
        "| a | b |",
        "|:--|--:|",
        "| 1 | x\\|y |",
        "---",
        "end",
      ].join("\n"),
    );
    const paragraph = (words: string): Block => ({ type: "paragraph", text: words });
    expect(found).toEqual([
      { type: "heading", level: 1, text: "Title" },
      paragraph("One\ntwo"),
      {
        type: "list",
        isOrdered: false,
        start: 1,
        items: [
          [paragraph("a"), { type: "list", isOrdered: false, start: 1, items: [[paragraph("b")]] }],
          [paragraph("c"), paragraph("more")],
        ],
      },
      { type: "list", isOrdered: true, start: 3, items: [[paragraph("three")]] },
      {
        type: "quote",
        blocks: [
          paragraph("quoted"),
          { type: "list", isOrdered: false, start: 1, items: [[paragraph("in")]] },
        ],
      },
      { type: "code", language: "py", text: "def f():\n    return 1", isOpen: false },
      {
        type: "table",
        columns: ["start", "end"],
        head: ["a", "b"],
        rows: [["1", "x|y"]],
      },
      { type: "rule" },
      paragraph("end"),
    ]);
  });

  it("keeps code in an item of a list, and code whose end has not come", () => {
    const [list, open] = blocks("1. do\n   ```sh\n   ls\n   ```\n2. done\n\n```\n# no heading");
    expect(list).toMatchObject({
      items: [[{ type: "paragraph" }, { type: "code", text: "ls", isOpen: false }], [{}]],
    });
    expect(open).toEqual({ type: "code", language: "", text: "# no heading", isOpen: true });
  });
});

test.each([
  "javascript:alert(1)",
  "JaVaScRiPt:alert(1)",
  "java\nscript:alert(1)",
  "\u0001javascript:alert(1)",
  "data:text/html,<script>alert(1)</script>",
  "vbscript:x",
  "file:///etc/passwd",
  "//evil.example",
  "/close",
  "#/session/x",
  "https:evil.example",
  "https://trusted.example@evil.example",
  "http://a b",
  "ftp://a.b",
  `https://a.b/${"x".repeat(3000)}`,
])("%s is no address of a link", (address) => {
  expect(safeHref(address)).toBe("");
  const parts = inline(`[click](${address}) <${address}>`);
  for (const part of parts.flatMap(function all(each): Inline[] {
    return "children" in each ? [each, ...each.children.flatMap(all)] : [each];
  })) {
    if (part.type === "link") expect(part.href).toMatch(/^https?:\/\//);
    expect(part.type === "link" && plain([part]) === "click").toBe(false);
  }
});

// Each is quadratic or worse where it is read in a simple way: minutes for 100,000 letters.
const LONG = 100_000;
const LIMIT_SECONDS = 1.5;
test.each<[string, string]>([
  ["brackets that open", "[".repeat(LONG)],
  ["links that never end", "[a](".repeat(LONG / 4)],
  ["brackets before one that closes", `${"[".repeat(LONG / 2)}${"a".repeat(LONG / 2)}](x)`],
  ["images", "![".repeat(LONG / 2)],
  ["stars that open", "*a ".repeat(LONG / 3)],
  ["stars", "*".repeat(LONG)],
  ["stars by turns", "*a **b ".repeat(LONG / 7)],
  ["closed pairs", "*a* ".repeat(LONG / 4)],
  ["underscores", "_a ".repeat(LONG / 3)],
  ["tildes", "~~a ".repeat(LONG / 4)],
  ["backquotes", "`a``b```".repeat(LONG / 8)],
  ["backquotes of all lengths", Array.from({ length: 440 }, (_, n) => "`".repeat(n)).join(" ")],
  ["angles", "<".repeat(LONG)],
  ["addresses", "https://".repeat(LONG / 8)],
  ["brackets at an address's end", `https://a.b/${")".repeat(LONG)}`],
  ["quotes", ">".repeat(LONG)],
  ["quotes by lines", "> > > > > > > > \n".repeat(LONG / 17)],
  ["items", "- ".repeat(LONG / 2)],
  ["items by lines", "- - - - - - - - a\n".repeat(LONG / 18)],
  ["marks of a rule", `${"- ".repeat(LONG / 2)}x`],
  ["a table's line", `a|b\n${"-|".repeat(LONG / 2)}`],
  ["a table's spaces", `a|b\n-${" ".repeat(LONG)}x|`],
  ["hashes", `# ${"#".repeat(LONG)}x`],
  ["hashes and spaces", `# ${"# ".repeat(LONG / 2)}x`],
  ["spaces at a line's end", `${" ".repeat(LONG)}\na`.repeat(2)],
  ["line ends", "\n".repeat(LONG)],
  ["fences", "```\n".repeat(LONG / 4)],
  ["escapes", "\\".repeat(LONG)],
])("%s are read in time that their length bounds", (_name, source) => {
  const began = process.cpuUsage();
  walk(blocks(source));
  // Of the processor, since others have it, too.
  expect(process.cpuUsage(began).user / 1e6).toBeLessThan(LIMIT_SECONDS);
});

function walk(found: readonly Block[]): void {
  for (const block of found) {
    if ("text" in block && block.type !== "code") inline(block.text);
    else if (block.type === "quote") walk(block.blocks);
    else if (block.type === "list") for (const item of block.items) walk(item);
    else if (block.type === "table") for (const row of block.rows) row.map(inline);
  }
}
