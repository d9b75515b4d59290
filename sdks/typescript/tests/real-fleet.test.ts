/** Against real agents: the Python client's tokens, whatever dies meanwhile. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test, vi } from "vitest";

import { Client, ModelNotFound, type SessionOptions } from "../src/index.js";
import { TextCodec, textCodec } from "../src/text/index.js";
import { Agent, fleetOf } from "./agents.js";
import { ROOT } from "./child.js";
import { asked, ELECTRON, electronExample } from "./electron.js";
import { launchChromium, standIn } from "./electron-stand-in.js";
import { runExample } from "./example.js";

const TOKENS = 240;
const SEED = 20_261_122;
const SAMPLED = { temperature: 0.8, seed: SEED };
// A history many times as long as what stays resident.
const SESSION: SessionOptions = { sinkTokens: 4, windowTokens: 64 };
const PROMPT = "def parse(line: str) -> list[str]:\n    '''Fields of a line.'''\n";

const PYTHON = `
import json, sys
from kakeya import Client
address, ids, tokens, seed = json.loads(sys.argv[1])
with Client(address) as client:
    for sampling in ({}, {"temperature": 0.8, "seed": seed}):
        with client.create_session("tiny", sink_tokens=4, window_tokens=64, speculation="off") as session:
            session.append(ids)
            print(json.dumps(session.generate(tokens, **sampling).collect().token_ids))
`;

let first: Agent;
let second: Agent;
let proposer: Agent;
let client: Client;
let cache: string;
let ids: number[];
let greedy: number[];
let sampled: number[];

beforeAll(async () => {
  console.log(`seed ${SEED}`);
  cache = mkdtempSync(join(tmpdir(), "kakeya-cache-"));
  first = await Agent.start("first", "--serve", "verifier=tiny");
  [second, proposer] = await Promise.all([
    Agent.start("second", "--serve", "verifier=tiny", "--peer", first.address),
    Agent.start("proposer", "--serve", "proposer=ngram", "--peer", first.address),
  ]);
  client = new Client(first.address);
  await fleetOf(client, 3);
  ids = (await TextCodec.fromFolder(`${ROOT}engine/shipped/tiny`)).encode(PROMPT);
  const question = JSON.stringify([first.address, ids, TOKENS, SEED]);
  const answers = execFileSync(`${ROOT}.venv/bin/python`, ["-c", PYTHON, question], {
    encoding: "utf8",
  });
  [greedy = [], sampled = []] = answers
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as number[]);
}, 120_000);

afterAll(async () => {
  await client.close();
  await Promise.all([first, second, proposer].map((agent) => agent.kill()));
  rmSync(cache, { recursive: true, force: true });
});

test("a model comes into a node that runs, and goes again", { tags: "wide" }, async () => {
  const other = new Client(proposer.address);
  try {
    const phases = new Set<string>();
    const load = other.fleet.loadModel("tiny-dflash", { role: "proposer" });
    for await (const progress of load) {
      phases.add(progress.phase);
    }
    expect(load.loaded).toMatchObject({ offer: { kind: "dflash" }, wasServed: false });
    expect(phases.has("unknown")).toBe(false);
    expect(
      (await other.fleet.loadModel("tiny-dflash", { role: "proposer" }).wait()).wasServed,
    ).toBe(true);
    const unloaded = await other.fleet.unloadModel("tiny-dflash");
    expect(unloaded).toMatchObject({ modelId: "tiny-dflash", role: "proposer" });
    expect((await other.fleet.node()).card?.models.map((each) => each.modelId)).toEqual(["ngram"]);
    await expect(other.fleet.unloadModel("tiny-dflash")).rejects.toThrow(ModelNotFound);
  } finally {
    await other.close();
  }
});

test("the stream is the Python client's, past the window", async () => {
  await using session = await client.createSession("tiny", { ...SESSION, speculation: "off" });
  await session.append(ids);
  const seen: number[] = [];
  for await (const tokens of session.generate({ maxTokens: TOKENS })) {
    expect(tokens.firstIndex).toBe(ids.length + seen.length);
    seen.push(...tokens.tokenIds);
  }
  expect(seen).toEqual(greedy);
  const info = await session.info();
  expect(info.residentTokenCount).toBeLessThanOrEqual(68);
  expect(info.historyLength).toBe(session.historyLength);
  await using fork = await session.fork(ids.length);
  const again = await fork.generate({ maxTokens: TOKENS, ...SAMPLED }).completion();
  expect(again.tokenIds).toEqual(sampled);
});

/** Runs a compiled example with the tokenizers of this test. */
function example(name: string, words: readonly string[], input = ""): Promise<string> {
  return runExample(name, words, { XDG_CACHE_HOME: cache }, input);
}

test("the chat example talks over one session", { tags: "wide" }, async () => {
  const out = await example("chat", [first.address], "hello\nand again\n");
  const lengths = [...out.matchAll(/\[(\d+) tokens\]/g)].map((each) => Number(each[1]));
  expect(lengths).toHaveLength(2);
  expect(lengths[1]).toBeGreaterThan(lengths[0] ?? 0);
});

test(
  "the agent example holds a session for a hundred turns, and no more K/V",
  { tags: "wide" },
  async () => {
    const out = await example("agent-loop", [first.address, "tiny", "100"]);
    const rows = out
      .trim()
      .split("\n")
      .slice(1)
      .map((line) => line.trim().split(/\s+/).map(Number));
    expect(rows).toHaveLength(100);
    const bytes = rows.filter(([, , history = 0]) => history > 150).map((row) => row[3]);
    expect(bytes.length).toBeGreaterThan(80);
    expect(new Set(bytes).size).toBe(1);
  },
);

/** What the Electron example shows for its prompt: the text that the node streams, piece by piece. */
async function showsTheStream(page: Page): Promise<void> {
  const codec = await textCodec(client, "tiny");
  const { stopTokenIds } = codec;
  await using session = await client.createSession("tiny", { speculation: "off", stopTokenIds });
  await session.append(codec.encode(PROMPT));
  const { tokenIds } = await session.generate({ maxTokens: 200 }).completion();
  const expected = codec.decode(tokenIds, { skipSpecialTokens: true });
  const states = await asked(page, PROMPT, expected);
  expect(states.length).toBeGreaterThan(10);
  expect(states.filter((state) => !expected.startsWith(state))).toEqual([]);
}

test(
  "the Electron example streams an answer to its page, with a stand-in for Electron",
  { tags: "wide" },
  async () => {
    standIn.chromium = await launchChromium();
    vi.stubEnv("KAKEYA_NODE", first.address);
    try {
      await import("../examples/dist/electron/main.js" as string);
      const [page] = standIn.pages;
      if (page === undefined) throw new Error("no window was opened");
      await showsTheStream(page);
    } finally {
      await standIn.quit();
      await standIn.chromium.close();
      vi.unstubAllEnvs();
    }
  },
);

const leftOut = ELECTRON === undefined ? ", left out: make test-electron" : "";
test.skipIf(leftOut !== "")(
  `the Electron example streams an answer to its page, in Electron${leftOut}`,
  async () => {
    const { page, close } = await electronExample(first.address);
    try {
      await showsTheStream(page);
    } finally {
      await close();
    }
  },
);

test("sessions and nodes are watched as they work", async () => {
  const signal = AbortSignal.timeout(20_000);
  await using session = await client.createSession("tiny", { ...SESSION, clientLabel: "watched" });
  await session.append(ids);
  const generated = session.generate({ maxTokens: 64 }).completion();
  for await (const event of client.watchSessions({ signal })) {
    const activities =
      event.type === "snapshot" ? event.sessions : event.type === "changed" ? [event.activity] : [];
    const mine = activities.find((each) => each.session.sessionId === session.sessionId);
    if (mine?.stopReason === "max_tokens") {
      expect(mine.session.clientLabel).toBe("watched");
      expect(mine.generatedTokenCount).toBe(64);
      break;
    }
  }
  await generated;
  // Of the history, or the next one: an answer may take less than from one sample to another.
  let speed = 0;
  for await (const event of client.fleet.watchNode({ historySeconds: 60, signal })) {
    if (event.type === "history") {
      expect(event.node.card.addresses).toContain(first.address);
      speed = Math.max(0, ...event.samples.map((sample) => sample.tokensPerSecond));
    } else if (event.type === "sample") {
      expect(event.sample.memoryFreeBytes).toBeGreaterThan(0);
      speed = Math.max(speed, event.sample.tokensPerSecond);
      if (speed > 0) break;
    }
  }
  expect(speed).toBeGreaterThan(0);
});

test("a proposer that dies costs no token", async () => {
  const speculation = { proposerModel: "ngram", blockSize: 4 };
  await using session = await client.createSession("tiny", { ...SESSION, speculation });
  expect(session.plan.proposer?.modelId).toBe("ngram");
  await session.append(ids);
  const seen: number[] = [];
  for await (const tokens of session.generate({ maxTokens: TOKENS })) {
    seen.push(...tokens.tokenIds);
    if (seen.length === tokens.tokenIds.length) {
      await proposer.kill();
    }
  }
  expect(seen).toEqual(greedy);
});

test("a verifier that dies costs no token and no character: another one goes on", async () => {
  const resuming = new Client(first.address);
  await using chat = await resuming.chat("tiny", { ...SESSION, speculation: "off" });
  const spoken = { ...SAMPLED, maxTokens: TOKENS };
  const whole = await chat.say(PROMPT, spoken).text();
  expect(chat.undo()).toBe(PROMPT);
  const pieces = chat.say(PROMPT, spoken)[Symbol.asyncIterator]();
  let text = (await pieces.next()).value ?? "";
  await using session = await resuming.createSession("tiny", {
    ...SESSION,
    speculation: "off",
    resume: true,
  });
  expect(session.address).toBe(first.address);
  await session.append(ids);
  await first.slow();
  const seen: number[] = [];
  for await (const tokens of session.generate({ maxTokens: TOKENS, ...SAMPLED })) {
    seen.push(...tokens.tokenIds);
    if (seen.length === tokens.tokenIds.length) {
      await first.kill();
    }
  }
  expect(seen).toEqual(sampled);
  for (let next = await pieces.next(); next.done !== true; next = await pieces.next()) {
    text += next.value;
  }
  expect(text).toBe(whole);
  expect(chat.messages.at(-1)?.content).toBe(whole);
  expect(session.resumptions).toMatchObject([
    { fromAddress: first.address, toAddress: second.address },
  ]);
  expect(session.resumptions[0]?.historyLength).toBeLessThan(ids.length + TOKENS);
  // The session lives on there.
  await session.append([1, 2, 3]);
  expect((await session.info()).historyLength).toBe(ids.length + TOKENS + 3);
  await session.close();
  await resuming.close();
});
