/** A session whose verifier is lost goes on elsewhere, with the same stream. */

import { describe, expect, test } from "vitest";

import {
  DeadlineExceeded,
  Draining,
  NodeUnreachable,
  NoPlacement,
  type Session,
  type SessionOptions,
  type Timeouts,
} from "../src/index.js";
import { Nodes } from "./nodes.js";

const nodes = new Nodes(2);

/** The scripted model's id at a position: sdks/README.md. */
function expected(position: number, seed = 0): number {
  return (position * 7 + 3 + seed * 13) % 1000;
}

function stream(first: number, count: number, seed = 0): number[] {
  return Array.from({ length: count }, (_, index) => expected(first + index, seed));
}

async function open(
  options: SessionOptions = {},
  timeouts: Partial<Timeouts> = {},
): Promise<Session> {
  await nodes.join();
  const session = await nodes
    .client({ timeouts: { streamIdle: 2, ...timeouts } })
    .createSession("tiny", { resume: true, ...options });
  await session.append([1, 2, 3]);
  return session;
}

describe("a generation goes on elsewhere", () => {
  const losses: Record<string, () => Promise<unknown>> = {
    "the node ends": async () => nodes.node.refuse("Generate", "UNAVAILABLE", { after_blocks: 2 }),
    "the node drains": async () =>
      nodes.node.refuse("Generate", "UNAVAILABLE", { after_blocks: 2, reason: "DRAINING" }),
    "a rank of its group is lost": async () =>
      nodes.node.refuse("Generate", "UNAVAILABLE", { after_blocks: 2, reason: "GROUP_LOST" }),
    "the node is silent": async () => nodes.node.set({ silent_after: 2 }),
    "the generation ends because the node drains": async () =>
      nodes.node.set({ ends_after: 8, done: { stop_reason: "STOP_REASON_DRAINING" } }),
  };

  test.each(Object.entries(losses))("when %s", async (_, lose) => {
    const session = await open({ clientLabel: "mine", windowTokens: 8 });
    await lose();
    await nodes.other.set({ done: { stop_reason: "STOP_REASON_MAX_TOKENS" } });
    const generation = session.generate({ maxTokens: 20, stopTokenIds: [999] });
    const { tokenIds, done } = await generation.completion();
    expect(tokenIds).toEqual(stream(3, 20));
    expect(done.generatedTokenCount).toBe(20);
    expect(done.stopReason).toBe("max_tokens");
    expect(session.address).toBe(nodes.other.address);
    expect(session.resumptions).toEqual([
      {
        fromAddress: nodes.node.address,
        toAddress: nodes.other.address,
        reason: expect.any(String),
        historyLength: 11,
        seconds: expect.any(Number),
      },
    ]);
    const { requests, sessions } = await nodes.other.report();
    expect(requests["CreateSession"]).toMatchObject([{ client_label: "mine", window_tokens: 8 }]);
    expect(requests["Generate"]).toMatchObject([{ max_tokens: 12, stop_token_ids: [999] }]);
    expect(Object.values(sessions)).toEqual([session.history]);
    expect(await session.append([5])).toBe(24);
  });
});

describe("those that compute alike come first", () => {
  const alike = { thread_count: 3, dtype: "float32", backend: "torch" };
  test.each([
    ["threads", { ...alike, thread_count: 2 }, alike],
    ["arithmetic", { ...alike, arithmetic: "another" }, alike],
    [
      "arithmetic before threads",
      { ...alike, arithmetic: "another" },
      { ...alike, thread_count: 1 },
    ],
    ["the back end", { ...alike, backend: "mlx" }, alike],
    [
      "the number format before threads",
      { ...alike, dtype: "bfloat16" },
      { ...alike, thread_count: 1 },
    ],
  ])("by %s", async (_, first, preferred) => {
    await nodes.node.set({ model: alike });
    await nodes.join([
      { ...first, model_id: "passed over" },
      { ...preferred, model_id: "tiny" },
    ]);
    const session = await nodes
      .client({ timeouts: { streamIdle: 2 } })
      .createSession("tiny", { resume: true });
    await session.append([1, 2, 3]);
    await nodes.node.refuse("Generate", "UNAVAILABLE", { after_blocks: 1 });
    await session.generate({ maxTokens: 8 }).completion();
    const { requests } = await nodes.other.report();
    expect(requests["CreateSession"]).toMatchObject([{ model_id: "tiny" }]);
  });
});

test("a sampled stream keeps the seed that the client drew", async () => {
  const session = await open();
  await nodes.node.refuse("Generate", "UNAVAILABLE", { after_blocks: 1 });
  const { tokenIds, done } = await session.generate({ maxTokens: 10, temperature: 1 }).completion();
  expect(done.seed).toBeGreaterThan(0n);
  const drawn = (position: number) => Number((BigInt(position * 7 + 3) + done.seed * 13n) % 1000n);
  expect(tokenIds).toEqual(tokenIds.map((_, index) => drawn(3 + index)));
});

test("an append goes on elsewhere, and nothing is doubled", async () => {
  const session = await open();
  await nodes.node.refuse("AppendTokens", "UNAVAILABLE", { reason: "DRAINING" });
  expect(await session.append([4, 5])).toBe(5);
  expect(session.resumptions.map((each) => each.reason)).toEqual(["DRAINING"]);
  expect(Object.values((await nodes.other.report()).sessions)).toEqual([[1, 2, 3, 4, 5]]);
});

test("a generation whose tokens all arrived asks nobody for more", async () => {
  const session = await open();
  await nodes.node.refuse("Generate", "UNAVAILABLE", { after_blocks: 2 });
  const { tokenIds, done } = await session
    .generate({ maxTokens: 9, stopTokenIds: [73] })
    .completion();
  expect(tokenIds).toEqual(stream(3, 8));
  expect([done.stopReason, done.generatedTokenCount]).toEqual(["stop_token", 8]);
  expect((await nodes.other.report()).requests["Generate"]).toBeUndefined();
});

test("a session that was not asked to resume stays where it is", async () => {
  const session = await open({ resume: false });
  await nodes.node.refuse("Generate", "UNAVAILABLE", { reason: "DRAINING" });
  await expect(session.generate({ maxTokens: 9 }).completion()).rejects.toThrow(Draining);
  expect(session.resumptions).toEqual([]);
  // By hand it goes.
  await session.resume();
  expect(session.address).toBe(nodes.other.address);
  expect((await session.generate({ maxTokens: 2 }).completion()).tokenIds).toEqual(stream(3, 2));
});

test("other weights never take over: the first error says so", async () => {
  const session = await open({}, { resume: 0 });
  await nodes.other.set({ model: { weights_digest: "ee".repeat(32) } });
  await nodes.node.refuse("Generate", "UNAVAILABLE", { after_blocks: 1 });
  const error: unknown = await session
    .generate({ maxTokens: 9 })
    .completion()
    .catch((each) => each);
  expect(error).toBeInstanceOf(NodeUnreachable);
  const { metadata } = error as NodeUnreachable;
  expect(metadata["resumption_failure"]).toContain("other weights");
  // What it opened there is closed again.
  await expect.poll(async () => (await nodes.other.report()).sessions).toEqual({});
  expect(session.history).toEqual([1, 2, 3, ...stream(3, 4)]);
});

test("nobody left: the first error, with what resuming found", async () => {
  const client = nodes.client({ timeouts: { resume: 0 } });
  const session = await client.createSession("tiny", { resume: true });
  await session.append([1]);
  await nodes.node.refuse("AppendTokens", "UNAVAILABLE", { reason: "DRAINING" });
  const error: unknown = await session.append([2]).catch((each) => each);
  expect(error).toBeInstanceOf(Draining);
  expect((error as Draining).metadata["resumption_reason"]).toBe("NO_PLACEMENT");
  await expect(session.resume()).rejects.toThrow(NoPlacement);
});

test("a deadline of the application is no loss", async () => {
  await nodes.join();
  const session = await nodes
    .client({ timeouts: { generation: 0.3, streamIdle: 5 } })
    .createSession("tiny", { resume: true });
  await session.append([1]);
  await nodes.node.set({ silent_after: 1 });
  await expect(session.generate({ maxTokens: 9 }).completion()).rejects.toThrow(DeadlineExceeded);
  expect(session.resumptions).toEqual([]);
});

test("leaving the loop leaves the node that took over", async () => {
  const session = await open();
  await nodes.node.refuse("Generate", "UNAVAILABLE", { after_blocks: 1 });
  await nodes.other.set({ silent_after: 2 });
  let count = 0;
  for await (const tokens of session.generate({ maxTokens: 1_000_000 })) {
    count += tokens.tokenIds.length;
    if (count === 8) {
      break;
    }
  }
  expect(await nodes.other.cancelled(0)).toBe(true);
  expect(session.historyLength).toBe(11);
});
