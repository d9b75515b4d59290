/** Histories: pieces, forks, rewinds, and what is left behind. */

import { expect, test } from "vitest";

import { HistoryLengthMismatch, SessionNotFound } from "../src/index.js";
import { Nodes } from "./nodes.js";

const nodes = new Nodes(1);

test("a long append travels in pieces that never double", async () => {
  const session = await nodes.client().createSession("tiny");
  const ids = Array.from({ length: 150_000 }, (_, index) => index % 1000);
  expect(await session.append(ids)).toBe(150_000);
  const { requests, sessions } = await nodes.node.report();
  const lengths = (requests["AppendTokens"] ?? []).map((each) =>
    Number((each as { expected_history_length?: string }).expected_history_length ?? 0),
  );
  expect(lengths).toEqual([0, 65_536, 131_072]);
  expect(sessions["s0"]).toEqual(ids);
  expect(session.history).toEqual(ids);
});

test("an append that stands on another length is refused here", async () => {
  const session = await nodes.client().createSession("tiny");
  await session.append([1, 2]);
  await expect(session.append([3], { expectedHistoryLength: 1 })).rejects.toThrow(
    HistoryLengthMismatch,
  );
  expect(session.history).toEqual([1, 2]);
});

test("a fork continues the first tokens, and the first session goes on", async () => {
  const session = await nodes.client().createSession("tiny");
  await session.append([1, 2, 3]);
  const fork = await session.fork(2);
  expect([fork.sessionId, fork.history]).toEqual(["f1", [1, 2]]);
  const [one, other] = await Promise.all([
    session.generate({ maxTokens: 2 }).completion(),
    fork.generate({ maxTokens: 2 }).completion(),
  ]);
  expect(one.tokenIds).toEqual([24, 31]);
  expect(other.tokenIds).toEqual([17, 24]);
  await expect(session.fork(9)).rejects.toThrow(HistoryLengthMismatch);
});

test("a rewind goes on as a fork, under a name of its own", async () => {
  const session = await nodes.client().createSession("tiny");
  await session.append([1, 2, 3]);
  await session.rewind(1);
  expect([session.sessionId, session.history]).toEqual(["f1", [1]]);
  expect((await nodes.node.report()).sessions).toEqual({ f1: [1] });
});

test("what arrived of a generation that was left is what the next one continues", async () => {
  await nodes.node.set({ commits_on_cancel: 3 });
  const session = await nodes.client().createSession("tiny");
  await session.append([1]);
  for await (const _ of session.generate({ maxTokens: 1_000_000 })) {
    break;
  }
  expect(await nodes.node.cancelled(0)).toBe(true);
  const held = session.history;
  const { tokenIds } = await session.generate({ maxTokens: 4 }).completion();
  expect(tokenIds[0]).toBe((held.length * 7 + 3) % 1000);
  expect((await nodes.node.report()).sessions).toEqual({ f1: [...held, ...tokenIds] });
});

test("an append that was aborted leaves no doubt behind", async () => {
  const session = await nodes.client().createSession("tiny");
  await session.append([1]);
  nodes.node.freeze();
  try {
    const signal = AbortSignal.timeout(150);
    await expect(session.append([2], { signal })).rejects.toHaveProperty("name", "TimeoutError");
  } finally {
    nodes.node.thaw();
  }
  expect(session.history).toEqual([1]);
  expect(await session.append([3])).toBe(2);
  expect(Object.values((await nodes.node.report()).sessions)).toEqual([[1, 3]]);
});

test("await using closes the session, and one that is gone is no error", async () => {
  const client = nodes.client();
  {
    await using session = await client.createSession("tiny");
    await session.append([1]);
  }
  expect((await nodes.node.report()).sessions).toEqual({});
  {
    await using session = await client.createSession("tiny");
    await nodes.node.tell({ forget: {} });
    await expect(session.info()).rejects.toThrow(SessionNotFound);
  }
});
