import { effect } from "@preact/signals";
import { beforeEach, expect, test } from "vitest";

import {
  apply,
  events,
  node,
  nodeIds,
  nodes,
  session,
  sessionKey,
  sessionKeys,
  endedSessions,
} from "../../page/state/fleet";
import { LIMITS } from "../../shared/limits";
import { SAMPLE_LIMIT } from "../../shared/sample";
import { blockView, eventView, fleetView, nodeView, sampleView, sessionView } from "../views";

beforeEach(() => {
  apply([{ type: "fleet", fleet: fleetView(["a", "b"]), now: Date.now() }]);
});

/** How often what `read` reads was told since this call. */
function counted(read: () => unknown): { count: number } {
  const told = { count: -1 };
  effect(() => {
    read();
    told.count += 1;
  });
  return told;
}

test("a sample of one node is told to that node's readers alone", () => {
  const a = counted(() => node("a").value);
  const b = counted(() => node("b").value);
  const ids = counted(() => nodeIds.value);
  const before = nodes.value;
  apply([{ type: "sample", nodeId: "a", sample: sampleView(1000) }]);
  expect([a.count, b.count, ids.count]).toEqual([1, 0, 0]);
  expect(node("a").value?.samples).toHaveLength(1);
  expect(nodes.value).not.toBe(before);
  expect(nodes.value[1]).toBe(before[1]);
});

test("a batch of messages is one change", () => {
  const a = counted(() => node("a").value);
  apply([1, 2, 3].map((second) => ({ type: "sample", nodeId: "a", sample: sampleView(second) })));
  expect(a.count).toBe(1);
  expect(node("a").value?.samples.map(({ at }) => at)).toEqual([1, 2, 3]);
});

test("a sample brings the node's load up to date, a node keeps its samples", () => {
  apply([{ type: "sample", nodeId: "a", sample: { ...sampleView(1000), kvBytes: 77 } }]);
  expect(node("a").value?.kvBytes).toBe(77);
  const { samples: _, ...plain } = nodeView("a");
  apply([{ type: "node", node: { ...plain, draining: true } }]);
  expect(node("a").value?.draining).toBe(true);
  expect(node("a").value?.samples).toHaveLength(1);
});

test("what is kept is bounded", () => {
  const many = Array.from({ length: SAMPLE_LIMIT + 50 }, (_, at) => sampleView(at));
  apply(many.map((sample) => ({ type: "sample", nodeId: "a", sample })));
  expect(node("a").value?.samples).toHaveLength(SAMPLE_LIMIT);
  expect(node("a").value?.samples[0]?.at).toBe(50);
  const told = Array.from({ length: LIMITS.events + 9 }, (_, at) => eventView("a", at));
  apply(told.map((event) => ({ type: "event", event })));
  expect(events.value).toHaveLength(LIMITS.events);
  expect(events.value[0]?.at).toBe(9);
});

test("events of nodes come in the order of their times, each once", () => {
  const rows = [eventView("a", 10), eventView("b", 5), eventView("a", 10), eventView("b", 20)];
  apply(rows.map((event) => ({ type: "event", event })));
  expect(events.value.map(({ at }) => at)).toEqual([5, 10, 20]);
});

test("a session gathers blocks until it ends, and is then among the ended", () => {
  const { blocks: _, ...plain } = sessionView("a", "s1");
  apply([{ type: "session", session: plain, blocks: [blockView(0), blockView(4)] }]);
  apply([{ type: "session", session: { ...plain, historyLength: 9 }, blocks: [blockView(8)] }]);
  const key = sessionKey(plain);
  expect(session(key).value?.blocks.map(({ firstIndex }) => firstIndex)).toEqual([0, 4, 8]);
  expect(session(key).value?.historyLength).toBe(9);
  apply([{ type: "session-ended", nodeId: "a", sessionId: "s1", outcome: "evicted" }]);
  expect(session(key).value).toBeUndefined();
  expect(sessionKeys.value).toEqual([]);
  expect(endedSessions.value.at(-1)?.outcome).toBe("evicted");
});

test("a node that was reached replaces what was held of it, and nothing else", () => {
  apply([{ type: "event", event: eventView("b", 1) }]);
  const told = { ...nodeView("a"), name: "a", samples: [sampleView(1), sampleView(2)] };
  apply([{ type: "history", node: told, events: [eventView("a", 3)], transfers: [] }]);
  expect(node("a").value?.samples).toHaveLength(2);
  expect(events.value.map(({ nodeId }) => nodeId)).toEqual(["b", "a"]);
  apply([{ type: "removed", nodeId: "a" }]);
  expect(nodeIds.value).toEqual(["b"]);
});
