/** A tokenizer as the files of a model's folder. */

import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { TokenizerNotFound } from "../errors.js";
import { TOKENIZER_FILES, type TokenizerFiles } from "../tokenizer-cache.js";

/** What is in a JSON file. */
export type JsonObject = { readonly [key: string]: unknown };

/** Special tokens that chat templates know by name. */
const NAMED_TOKENS = [
  "bos_token",
  "eos_token",
  "unk_token",
  "sep_token",
  "pad_token",
  "cls_token",
  "mask_token",
];

/** What the files say. */
export interface TokenizerFolder {
  /** tokenizer.json, with all special tokens. */
  readonly tokenizer: JsonObject;
  /** SHA-256 of tokenizer.json, hexadecimal: what cards call the tokenizer. */
  readonly digest: string;
  /** Special tokens by name. */
  readonly namedTokens: ReadonlyMap<string, string>;
  /** Ids that end an answer, as the model's own files tell; empty when they do not. */
  readonly stopTokenIds: readonly number[];
  /** Chat templates by name, "default" for the only one. */
  readonly templates: ReadonlyMap<string, string>;
}

/** The files of a local folder. Throws TokenizerNotFound. */
export async function readFolder(path: string): Promise<TokenizerFolder> {
  const files = new Map<string, Uint8Array>();
  for (const name of TOKENIZER_FILES) {
    try {
      files.set(name, await readFile(join(path, name)));
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === "ENOENT")) {
        throw unreadable(join(path, name), error);
      }
    }
  }
  return readFiles(files, path);
}

/** What `files` say; `source` names where they are from. Throws TokenizerNotFound. */
export function readFiles(files: TokenizerFiles, source: string): TokenizerFolder {
  const content = files.get(TOKENIZER_FILES[0]);
  if (content === undefined) {
    throw new TokenizerNotFound(
      `no tokenizer at ${source}: a folder in the hub's format with a ${TOKENIZER_FILES[0]} ` +
        "is needed",
      { metadata: { source } },
    );
  }
  const json = (name: string) => readJson(files, name, source);
  const tokenizer = json(TOKENIZER_FILES[0]);
  let config = json("tokenizer_config.json");
  if (!("added_tokens_decoder" in config)) {
    // Folders of an earlier format keep their special tokens in a file of their own.
    config = { ...config, ...json("special_tokens_map.json") };
  }
  if (isObject(tokenizer["padding"]) && !("pad_token" in config)) {
    config = { ...config, pad_token: tokenizer["padding"]["pad_token"] };
  }
  return {
    tokenizer: withSpecialTokens(tokenizer, config),
    digest: createHash("sha256").update(content).digest("hex"),
    namedTokens: new Map(
      NAMED_TOKENS.filter((name) => config[name]).map((name) => [name, contentOf(config[name])]),
    ),
    stopTokenIds:
      stopTokenIds(json("generation_config.json")) ?? stopTokenIds(json("config.json")) ?? [],
    templates: templates(files, config),
  };
}

function readJson(files: TokenizerFiles, name: string, source: string): JsonObject {
  const content = files.get(name);
  if (content === undefined) {
    return {};
  }
  let found: unknown;
  try {
    found = JSON.parse(textOf(content));
  } catch (error) {
    throw unreadable(`${name} of ${source}`, error);
  }
  if (!isObject(found)) {
    throw unreadable(`${name} of ${source}`, "it holds no object");
  }
  return found;
}

function unreadable(path: string, cause: unknown): TokenizerNotFound {
  const detail = cause instanceof Error ? cause.message : String(cause);
  return new TokenizerNotFound(`${path} cannot be read (${detail}): copy it again from the model`, {
    metadata: { source: path, detail },
  });
}

/** The tokenizer with what the config declares special tokens. */
function withSpecialTokens(tokenizer: JsonObject, config: JsonObject): JsonObject {
  const added = list(tokenizer["added_tokens"]).filter(isObject);
  const there = new Set(added.map((token) => String(token["content"])));
  const ids = vocabulary(tokenizer);
  let next = Math.max(ids.size, ...added.map((token) => Number(token["id"]) + 1));
  const add = (token: unknown, flags: JsonObject) => {
    const content = contentOf(token);
    if (content === "" || there.has(content)) {
      return;
    }
    there.add(content);
    const id = ids.get(content) ?? next++;
    added.push({ lstrip: false, rstrip: false, single_word: false, ...flags, id, content });
  };
  const declared = isObject(config["added_tokens_decoder"]) ? config["added_tokens_decoder"] : {};
  const inOrder = Object.entries(declared).sort(([one], [other]) => Number(one) - Number(other));
  for (const [, token] of inOrder) {
    const given = isObject(token) ? token : {};
    add(token, { special: false, normalized: given["special"] !== true, ...given });
  }
  const extra = config["extra_special_tokens"] ?? config["additional_special_tokens"] ?? [];
  const others = Object.entries(config)
    .filter(
      ([name, token]) =>
        name.endsWith("_token") &&
        !NAMED_TOKENS.includes(name) &&
        (typeof token === "string" || isObject(token)),
    )
    .map(([, token]) => token);
  for (const token of [
    ...NAMED_TOKENS.map((name) => config[name]).filter(Boolean),
    ...others,
    ...(isObject(extra) ? Object.values(extra) : list(extra)),
  ]) {
    add(token, { normalized: false, ...(isObject(token) ? token : {}), special: true });
  }
  return { ...tokenizer, added_tokens: added };
}

/** The model's own tokens and their ids. */
function vocabulary(tokenizer: JsonObject): ReadonlyMap<string, number> {
  const vocab = isObject(tokenizer["model"]) ? tokenizer["model"]["vocab"] : undefined;
  if (isObject(vocab)) {
    return new Map(Object.entries(vocab).map(([token, id]) => [token, Number(id)]));
  }
  // Unigram models have scored tokens, in the order of their ids.
  return new Map(list(vocab).map((entry, id) => [String(list(entry)[0]), id]));
}

/** One id, several or none. */
function stopTokenIds(config: JsonObject): readonly number[] | undefined {
  // Models of several kinds of input keep their text's config apart.
  const inner = isObject(config["text_config"]) ? config["text_config"]["eos_token_id"] : undefined;
  const found = "eos_token_id" in config ? config["eos_token_id"] : inner;
  const ids = Array.isArray(found) ? found : [found];
  const numbers = ids.filter((id): id is number => Number.isInteger(id));
  return ids.length > 0 && numbers.length === ids.length ? numbers : undefined;
}

function templates(files: TokenizerFiles, config: JsonObject): ReadonlyMap<string, string> {
  const file = files.get("chat_template.jinja");
  if (file !== undefined) {
    return new Map([["default", textOf(file)]]);
  }
  const found = config["chat_template"];
  if (typeof found === "string") {
    return new Map([["default", found]]);
  }
  return new Map(
    list(found)
      .filter(isObject)
      .map((each) => [String(each["name"]), String(each["template"])]),
  );
}

function textOf(content: Uint8Array): string {
  return new TextDecoder("utf-8", { fatal: true }).decode(content);
}

function contentOf(token: unknown): string {
  return isObject(token) ? String(token["content"]) : String(token);
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? [...value] : [];
}
