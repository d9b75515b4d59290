/** Text is the same as in Python: ids, their text, and rendered chats. */

import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { ChatTemplateError, Client, TokenizerMismatch, TokenizerNotFound } from "../src/index.js";
import { Detokenizer, TextCodec, textCodec, type ChatMessage } from "../src/text/index.js";
import { ROOT } from "./child.js";
import { ScriptedNode } from "./scripted-node.js";

interface Vectors {
  readonly digest: string;
  readonly eos_token_id: number;
  readonly stop_token_ids: readonly number[];
  readonly texts: readonly {
    readonly text: string;
    readonly ids: readonly number[];
    readonly special_ids: readonly number[];
    readonly decoded: string;
    readonly skipped: string;
  }[];
  readonly chats: readonly {
    readonly messages: readonly ChatMessage[];
    readonly rendered: string;
    readonly closed: string;
  }[];
}

const VECTORS = JSON.parse(
  readFileSync(new URL("text-vectors.json", import.meta.url), "utf8"),
) as Vectors;
const TINY = `${ROOT}engine/shipped/tiny`;

describe("the shipped tokenizer", async () => {
  const codec = await TextCodec.fromFolder(TINY);

  test.each(VECTORS.texts)("ids and their text: $text", (vector) => {
    expect(codec.encode(vector.text)).toEqual(vector.ids);
    expect(codec.encode(vector.text, { addSpecialTokens: true })).toEqual(vector.special_ids);
    expect(codec.decode(vector.ids)).toBe(vector.decoded);
    expect(codec.decode(vector.ids, { skipSpecialTokens: true })).toBe(vector.skipped);
  });

  test.each(VECTORS.texts)("a stream of ids gives the same text: $text", (vector) => {
    for (const size of [1, 2, 7]) {
      const stream = codec.detokenizer();
      const pieces: string[] = [];
      for (let start = 0; start < vector.ids.length; start += size) {
        pieces.push(stream.push(vector.ids.slice(start, start + size)));
      }
      pieces.push(stream.flush());
      expect(pieces.join("")).toBe(vector.decoded);
      // What was shown is never half a character.
      expect(pieces.slice(0, -1).every((piece) => !piece.endsWith("\ufffd"))).toBe(true);
    }
  });

  test.each(VECTORS.chats)("chats are rendered the same", (vector) => {
    expect(codec.renderChat(vector.messages)).toBe(vector.rendered);
    expect(codec.renderChat(vector.messages, { addGenerationPrompt: false })).toBe(vector.closed);
  });

  test("says what it is", () => {
    expect(codec.digest).toBe(VECTORS.digest);
    expect(codec.eosTokenId).toBe(VECTORS.eos_token_id);
    expect(codec.stopTokenIds).toEqual(VECTORS.stop_token_ids);
    expect(codec.hasChatTemplate).toBe(true);
    expect(codec.decode([999_999])).toBe("");
    expect(() => codec.renderChat([])).toThrow(ChatTemplateError);
  });
});

test("a folder without a tokenizer is named", async () => {
  await expect(TextCodec.fromFolder("/nowhere")).rejects.toThrow(TokenizerNotFound);
});

test("a detokenizer keeps what may become a character", () => {
  const bytes = new TextDecoder();
  const stream = new Detokenizer((ids) => bytes.decode(Uint8Array.from(ids)));
  const [first = 0, ...rest] = new TextEncoder().encode("é!");
  expect(stream.push([first])).toBe("");
  expect(stream.push(rest)).toBe("é!");
  expect(stream.push([first])).toBe("");
  expect(stream.flush()).toBe("\ufffd");
});

describe("a tokenizer that a node sends", () => {
  let node: ScriptedNode;
  let cache: string;
  const before = process.env["XDG_CACHE_HOME"];
  const files = Object.fromEntries(
    ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"].map((name) => [
      name,
      readFileSync(join(TINY, name), "utf8"),
    ]),
  );

  beforeAll(async () => {
    cache = mkdtempSync(join(tmpdir(), "kakeya-text-"));
    process.env["XDG_CACHE_HOME"] = cache;
    node = await ScriptedNode.start();
    await node.set({ tokenizer_files: files });
  });

  afterAll(async () => {
    if (before === undefined) {
      delete process.env["XDG_CACHE_HOME"];
    } else {
      process.env["XDG_CACHE_HOME"] = before;
    }
    await node.end();
    rmSync(cache, { recursive: true });
  });

  const kept = () => readdirSync(join(cache, "kakeya", "tokenizers"));

  test("is checked, kept, and shared by its content", async () => {
    await using client = new Client(node.address);
    const codec = await textCodec(client, "tiny");
    expect(codec.encode("def f")).toEqual((await TextCodec.fromFolder(TINY)).encode("def f"));
    expect(await textCodec(client, "tiny")).toBe(codec);
    expect(kept()).toHaveLength(1);
    // Another client reads what is kept, and sees that a file was damaged.
    const damaged = join(cache, "kakeya", "tokenizers", kept()[0] ?? "", "tokenizer.json");
    writeFileSync(damaged, "{}");
    await using other = new Client(node.address);
    expect((await textCodec(other, "tiny")).digest).toBe(VECTORS.digest);
    expect(readFileSync(damaged, "utf8")).toBe(files["tokenizer.json"]);
    expect(kept()).toHaveLength(1);
  });

  test("is refused under a name that is no tokenizer's", async () => {
    await node.set({ tokenizer_files: { ...files, "evil.sh": "x" } });
    await using client = new Client(node.address);
    await expect(textCodec(client, "tiny")).rejects.toThrow(TokenizerMismatch);
    await node.set({ tokenizer_files: files });
  });

  test("that is not served is named", async () => {
    await node.refuse("GetTokenizer", "NOT_FOUND", { reason: "TOKENIZER_NOT_FOUND" });
    await using client = new Client(node.address);
    await expect(textCodec(client, "tiny")).rejects.toThrow(TokenizerNotFound);
  });
});
