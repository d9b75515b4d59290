/** The cases of sdks/vectors.json, which the Python client runs too. */

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, expect, test } from "vitest";

import * as kakeya from "../src/index.js";
import { fromOpenAIMessages, textCodec } from "../src/text/index.js";
import { ROOT } from "./child.js";
import { ScriptedNode } from "./scripted-node.js";

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type Fields = { [key: string]: Json };
type Step = { readonly [key: string]: Json };

interface Case {
  readonly name: string;
  readonly set?: Fields;
  readonly client?: Fields;
  readonly steps: readonly Step[];
}

const CASES = (JSON.parse(readFileSync(`${ROOT}sdks/vectors.json`, "utf8")) as { cases: Case[] })
  .cases;
// What Python takes by position.
const POSITIONAL = ["model", "token_ids", "history_length", "messages", "request", "text", "session_id"];
// Keys of these are data, and never renamed.
const VERBATIM = new Set(["metadata", "logitBias", "variables"]);

const nodes = new Map<string, ScriptedNode>();

const cacheBefore = process.env["XDG_CACHE_HOME"];
let cache: string;

beforeAll(async () => {
  cache = mkdtempSync(join(tmpdir(), "kakeya-vectors-"));
  process.env["XDG_CACHE_HOME"] = cache;
  const started = await Promise.all([ScriptedNode.start(), ScriptedNode.start()]);
  nodes.set("node", started[0]);
  nodes.set("other", started[1]);
});

afterAll(async () => {
  await Promise.all([...nodes.values()].map((node) => node.end()));
  if (cacheBefore === undefined) {
    delete process.env["XDG_CACHE_HOME"];
  } else {
    process.env["XDG_CACHE_HOME"] = cacheBefore;
  }
  rmSync(cache, { recursive: true });
});

function node(name: Json | undefined): ScriptedNode {
  const found = nodes.get(String(name));
  if (found === undefined) {
    throw new Error(`no node ${String(name)}`);
  }
  return found;
}

function camel(name: string): string {
  return name.replaceAll(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

function snake(name: string): string {
  return name.replaceAll(/[A-Z]/g, (part) => `_${part.toLowerCase()}`);
}

/** Arguments in the spelling of TypeScript. */
function spelled(value: Json): Json {
  if (Array.isArray(value)) {
    return value.map(spelled);
  }
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(
      Object.entries(value).map(([key, each]) => [
        camel(key),
        VERBATIM.has(camel(key)) ? each : spelled(each),
      ]),
    );
  }
  return value;
}

/** A value of the client as JSON has it, in the spelling of Python. */
function plain(value: unknown): Json {
  if (value === undefined || value === null) {
    return null;
  }
  if (typeof value === "bigint") {
    return value.toString();
  }
  if (Array.isArray(value)) {
    return value.map(plain);
  }
  if (typeof value === "object") {
    return Object.fromEntries(
      Object.entries(value).map(([key, each]) => [
        snake(key),
        VERBATIM.has(key) ? (each as Json) : plain(each),
      ]),
    );
  }
  return value as Json;
}

/** Whether a value is as expected, by the rules of sdks/README.md. */
function matches(expected: Json, seen: Json | undefined): boolean {
  if (expected === "$any") {
    return true;
  }
  if (expected === "$absent" || expected === null) {
    return seen === undefined || seen === null;
  }
  if (Array.isArray(expected)) {
    return (
      Array.isArray(seen) &&
      seen.length === expected.length &&
      expected.every((each, index) => matches(each, seen[index]))
    );
  }
  if (typeof expected === "object") {
    return (
      typeof seen === "object" &&
      seen !== null &&
      !Array.isArray(seen) &&
      Object.entries(expected).every(([key, each]) => matches(each, seen[key]))
    );
  }
  if (typeof expected === "number" && typeof seen === "string") {
    return seen === String(expected);
  }
  if (typeof expected === "string" && typeof seen === "number") {
    return expected === String(seen);
  }
  return expected === seen;
}

/** The steps of one case. */
class Run {
  readonly #steps: readonly Step[];
  readonly #client: kakeya.Client;
  readonly #names = new Map<string, unknown>();
  readonly #open = new Map<string, AsyncIterator<unknown>>();

  private constructor(steps: readonly Step[], client: kakeya.Client) {
    this.#steps = steps;
    this.#client = client;
    this.#names.set("client", client);
    this.#names.set("text", {
      codec: (model: string) => textCodec(client, model),
      fromOpenaiMessages: fromOpenAIMessages,
    });
  }

  static async of(raw: Case): Promise<Run> {
    let text = JSON.stringify(raw);
    for (const [name, each] of nodes) {
      await each.reset();
      text = text.replaceAll(`$${name}`, each.address);
    }
    const filled = JSON.parse(text) as Case;
    for (const [name, script] of Object.entries(filled.set ?? {})) {
      await node(name).set(script as Fields);
    }
    const options = spelled(filled.client ?? {}) as kakeya.ClientOptions;
    return new Run(filled.steps, new kakeya.Client(node("node").address, options));
  }

  async run(): Promise<void> {
    try {
      for (const [number, step] of this.#steps.entries()) {
        const where = `step ${number}: ${JSON.stringify(step)}`;
        if (step["error"] !== undefined) {
          await this.#fails(step, where);
          continue;
        }
        const seen = await this.#step(step);
        if (step["expect"] !== undefined && !matches(step["expect"], seen)) {
          throw new Error(`${where}\n\nseen: ${JSON.stringify(seen)}`);
        }
      }
    } finally {
      await this.#client.close();
    }
  }

  async #fails(step: Step, where: string): Promise<void> {
    const { class: name, ...fields } = step["error"] as Fields;
    const kind: unknown = Object.entries(kakeya).find(([each]) => each === name)?.[1];
    let caught: unknown;
    try {
      await this.#step(step);
    } catch (error) {
      caught = error;
    }
    expect(caught, where).toBeInstanceOf(kakeya.KakeyaError);
    const failure = caught as kakeya.KakeyaError;
    expect(failure.constructor, `${where}\n\n${failure.stack}`).toBe(kind);
    for (const [field, expected] of Object.entries(fields)) {
      const value = plain(Reflect.get(failure, camel(field)));
      // Names of parameters are spelled as the language does.
      const seen = field === "field" ? snake(String(value)) : value;
      expect(matches(expected, seen), `${where}\n\n${field}: ${JSON.stringify(seen)}`).toBe(true);
    }
  }

  /** What a step gives; values of the client in the spelling of Python. */
  async #step(step: Step): Promise<Json> {
    const answered = await this.#told(step);
    return answered === undefined ? plain(await this.#called(step)) : (answered as Json);
  }

  async #called(step: Step): Promise<unknown> {
    if (step["call"] !== undefined) {
      return this.#keep(step, await this.#start(String(step["call"]), step));
    }
    if (step["iterate"] !== undefined) {
      const stream = this.#keep(step, this.#start(String(step["iterate"]), step));
      return this.#items(stream as AsyncIterable<unknown>, step["leave_after"]);
    }
    if (step["collect"] !== undefined) {
      const generation = this.#keep(step, this.#start(String(step["collect"]), step));
      return (generation as kakeya.Generation).completion();
    }
    if (step["begin"] !== undefined) {
      const stream = this.#keep(step, this.#start(String(step["begin"]), step));
      const items = (stream as AsyncIterable<unknown>)[Symbol.asyncIterator]();
      this.#open.set(String(step["as"]), items);
      const seen: unknown[] = [];
      for (let count = 0; count < Number(step["items"] ?? 1); count += 1) {
        seen.push((await items.next()).value);
      }
      return seen;
    }
    if (step["go_on"] !== undefined) {
      const items = this.#open.get(String(step["go_on"]));
      if (items === undefined) {
        throw new Error(`${String(step["go_on"])} is not open`);
      }
      return this.#items({ [Symbol.asyncIterator]: () => items }, step["leave_after"]);
    }
    if (step["read"] !== undefined) {
      return this.#find(String(step["read"])).value;
    }
    throw new Error(`no such step: ${JSON.stringify(step)}`);
  }

  /** What a node answers to a step that asks it; undefined for other steps. */
  async #told(step: Step): Promise<unknown> {
    if (step["tell"] !== undefined) {
      return node(step["tell"]).tell(step["command"] as Fields);
    }
    if (step["requests"] !== undefined) {
      const report = await node(step["of"] ?? "node").report();
      return report.requests[String(step["requests"])] ?? [];
    }
    if (step["sessions"] !== undefined) {
      return (await node(step["sessions"]).report()).sessions;
    }
    if (step["authorizations"] !== undefined) {
      return (await node(step["authorizations"]).report()).authorizations;
    }
    return undefined;
  }

  #keep<T>(step: Step, value: T): T {
    if (typeof step["as"] === "string") {
      this.#names.set(step["as"], value);
    }
    return value;
  }

  #find(path: string): { owner: unknown; value: unknown } {
    const [first = "", ...rest] = path.split(".");
    let found = { owner: undefined as unknown, value: this.#names.get(first) };
    for (const name of rest) {
      const owner = found.value;
      found = { owner, value: Reflect.get(owner as object, camel(name)) };
    }
    return found;
  }

  #start(path: string, step: Step): unknown {
    const given = Object.entries((step["arguments"] ?? {}) as Fields);
    const positional = given.filter(([name]) => POSITIONAL.includes(name));
    const named = given.filter(([name]) => !POSITIONAL.includes(name));
    const args: unknown[] = positional.map(([, value]) => value);
    if (named.length > 0) {
      args.push(spelled(Object.fromEntries(named)));
    }
    const { owner, value } = this.#find(path);
    return Reflect.apply(value as (...each: unknown[]) => unknown, owner, args);
  }

  async #items(stream: AsyncIterable<unknown>, leaveAfter: Json | undefined): Promise<unknown[]> {
    const seen: unknown[] = [];
    for await (const each of stream) {
      seen.push(each);
      if (leaveAfter !== undefined && seen.length === Number(leaveAfter)) {
        break;
      }
    }
    return seen;
  }
}

test.each(CASES)("$name", async (each) => {
  await (await Run.of(each)).run();
});
