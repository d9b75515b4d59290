/** The example of each family of chat models: the Python client runs the same cases. */

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { fromOpenAIMessages, TextCodec } from "@kakeya/runtime/text";
import { expect, test } from "vitest";

import { PLAIN, THINKING } from "../examples/chat-families.js";
import { ROOT } from "./child.js";
import { runExample } from "./example.js";
import { Nodes } from "./nodes.js";

interface Case {
  readonly thinking?: boolean;
  readonly messages: readonly object[];
  readonly text: string;
}

interface Family {
  readonly bos_token: string | null;
  readonly eos_token: string;
  readonly marks: readonly string[];
  readonly template: readonly string[];
  readonly cases: readonly Case[];
}

const nodes = new Nodes(1);
const { families } = JSON.parse(readFileSync(`${ROOT}sdks/chat-families.json`, "utf8")) as {
  families: Record<string, Family>;
};
const tokenizer = readFileSync(`${ROOT}engine/shipped/tiny/tokenizer.json`, "utf8");

/** A model's folder: the shipped tokenizer with the family's marks and template. */
function filesOf(family: Family): Record<string, string> {
  const { bos_token: bos, eos_token, marks } = family;
  const config = { extra_special_tokens: marks, eos_token, ...(bos ? { bos_token: bos } : {}) };
  return {
    "tokenizer.json": tokenizer,
    "tokenizer_config.json": JSON.stringify(config),
    "chat_template.jinja": family.template.join("\n"),
  };
}

function codecOf(family: Family): Promise<TextCodec> {
  const encoder = new TextEncoder();
  const files = Object.entries(filesOf(family)).map(
    ([name, content]) => [name, encoder.encode(content)] as const,
  );
  return TextCodec.fromFiles(new Map(files), "test");
}

const cases = Object.entries(families).flatMap(([name, family]) =>
  family.cases.map((each, place) => ({ name, place, family, each })),
);

test.each(cases)("a chat of $name, $place", async ({ name, family, each }) => {
  const codec = await codecOf(family);
  const messages = fromOpenAIMessages(each.messages);
  const { thinking } = each;
  const ids =
    thinking === undefined
      ? PLAIN[name]?.(codec, messages)
      : THINKING[name]?.(codec, messages, { thinking });
  expect(codec.decode(ids ?? [])).toBe(each.text);
  // Marks are one id each, and the text's beginning is there once.
  for (const mark of [...family.marks, family.bos_token ?? "", family.eos_token].filter(Boolean)) {
    const [markId, ...more] = codec.encode(mark);
    expect(more, mark).toEqual([]);
    expect(ids?.filter((id) => id === markId).length, mark).toBe(each.text.split(mark).length - 1);
  }
});

test("every family has an example", () => {
  const named = [...Object.keys(THINKING), ...Object.keys(PLAIN)];
  expect(named.sort()).toEqual(Object.keys(families).sort());
});

test("the example asks a node", async () => {
  const family = families["qwen3"];
  if (family === undefined) {
    throw new Error("no family qwen3");
  }
  await nodes.node.set({ tokenizer_files: filesOf(family), vocabulary_size: 100_000 });
  const cache = mkdtempSync(join(tmpdir(), "kakeya-ask-"));
  const environment = { XDG_CACHE_HOME: cache, NO_THINKING: "1" };
  const out = await runExample("ask", [nodes.node.address, "tiny", "qwen3"], environment);
  rmSync(cache, { recursive: true });
  expect(out.trim()).not.toBe("");
  const { requests, sessions } = await nodes.node.report();
  const [opening] = requests["CreateSession"] as { initial_token_ids: number[] }[];
  const codec = await codecOf(family);
  expect(codec.decode(opening?.initial_token_ids ?? [])).toBe(family.cases[1]?.text);
  expect(sessions).toEqual({});
});
