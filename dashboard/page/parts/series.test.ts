import { expect, test } from "vitest";

import type { NodeView } from "../../shared/messages";
import { nodeView, sampleView } from "../../tests/views";
import { hostMemory } from "./hosts";
import { fleetSeries } from "./series";

/** A node with samples that ended at `ends`, in seconds. */
function node(nodeId: string, tokensPerSecond: number, ends: readonly number[]): NodeView {
  const samples = ends.map((end) => ({ ...sampleView(end * 1000), tokensPerSecond }));
  return { ...nodeView(nodeId), samples };
}

test("the newest second has every node's latest sample, told yet or not", () => {
  const early = node("a", 10, [100.1, 101.1, 102.1, 103.1]);
  const late = node("b", 5, [99.9, 100.9, 101.9, 102.9]);
  const { at, tokensPerSecond } = fleetSeries([early, late], 900);
  expect(at.at(-1)).toBe(103_000);
  // The first second has one node's tokens alone: the means of up to five seconds tell it on.
  expect(tokensPerSecond).toEqual([5, 10, 35 / 3, 12.5, 13]);
});

test("a node that stopped telling is left out once its latest sample is old", () => {
  const living = node("a", 10, [100, 101, 102, 103, 104, 105]);
  const silent = node("b", 5, [100, 101]);
  expect(fleetSeries([living, silent], 900).tokensPerSecond).toEqual([15, 15, 15, 15, 14, 13]);
});

test("two samples in one second and none in the next are a second each", () => {
  const jittery = node("a", 10, [100.01, 100.99, 102.01]);
  expect(fleetSeries([jittery], 900).tokensPerSecond).toEqual([10, 10, 10]);
});

test("what is counted is counted once, however long its sample stands", () => {
  const silent = node("a", 1, [101]);
  silent.samples = silent.samples.map((each) => ({ ...each, draftedCount: 9, acceptedCount: 9 }));
  const living = node("b", 1, [101, 102]);
  living.samples = living.samples.map((each) => ({ ...each, draftedCount: 9 }));
  expect(fleetSeries([silent, living], 900).acceptance).toEqual([9 / 18, 9 / 27]);
});

test("the memory of a machine is counted once, whatever runs on it", () => {
  const shared = { hostId: "machine", memoryTotalBytes: 8e9, memoryFreeBytes: 4e9 };
  const nodes = [
    { ...node("a", 1, [100]), ...shared },
    { ...node("b", 1, [100]), ...shared, memoryFreeBytes: 3.9e9 },
    node("c", 1, [100]),
  ];
  expect(hostMemory(nodes)).toEqual({ usedBytes: 4.1e9 + 4e9, totalBytes: 16e9 });
  expect(fleetSeries(nodes, 900).usedBytes).toEqual([8e9]);
});
