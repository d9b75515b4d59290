import { expect, test } from "vitest";

import type { NodeView } from "../../shared/messages";
import { nodeView, sampleView } from "../../tests/views";
import { busyMachines, useOf } from "./cores";

/** A node that told these shares, a second each. */
function node(nodeId: string, shares: readonly (number | null)[], hostId = nodeId): NodeView {
  const samples = shares.map((cpuShare, at) => ({
    ...sampleView(1000 * at),
    cpuShare,
    processCpuShare: cpuShare === null ? null : cpuShare / 2,
  }));
  return { ...nodeView(nodeId), hostId, samples };
}

test("use is the mean of the latest five seconds", () => {
  const { cores, own, accelerator } = useOf(node("a", [1, 1, 0, 0.5, 0.5, 0.5, 0.5]));
  expect([cores, own, accelerator]).toEqual([0.4, 0.2, null]);
});

test("what is not told is null, and an idle machine 0", () => {
  expect(useOf(node("a", [0, 0])).cores).toBe(0);
  expect(useOf(node("a", []))).toEqual({ cores: null, own: null, accelerator: null });
  expect(useOf(node("a", [0.5, null])).cores).toBeNull();
  expect(useOf(node("a", [null, 0.5])).cores).toBe(0.5);
});

test("what nobody hears or who is gone tells nothing of now", () => {
  const busy = node("a", [0.5]);
  expect(useOf({ ...busy, reachable: false }).cores).toBeNull();
  expect(useOf({ ...busy, liveness: "dead" }).cores).toBeNull();
  expect(useOf({ ...busy, liveness: "suspect" }).cores).toBe(0.5);
});

test("the cores of a machine are told once, at the first of its nodes that tells", () => {
  const nodes = [
    node("old", [null], "machine"),
    node("a", [0.5], "machine"),
    node("b", [0.75], "machine"),
    node("c", [0.25]),
  ];
  expect([...busyMachines(nodes)]).toEqual([
    ["a", 0.75],
    ["c", 0.25],
  ]);
});
