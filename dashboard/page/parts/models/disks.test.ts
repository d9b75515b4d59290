import { expect, it } from "vitest";

import { modelView, nodeView, storedView, transferView } from "../../../tests/views";
import { copyTargets, disksByModel } from "./disks";
import { modelRows } from "./model_rows";

const beside = (nodeId: string) => ({ ...nodeView(nodeId), hostId: "one machine" });

it("counts the cache of a machine once, and asks the node that serves what is in it", () => {
  const nodes = [beside("a"), beside("b"), nodeView("c")];
  const disks = disksByModel(nodes, {
    a: [storedView("qwen")],
    b: [storedView("qwen", { isServed: true })],
    c: [storedView("qwen")],
  }).get("qwen");
  expect(disks?.map(({ nodeIds, askedNodeId }) => [nodeIds, askedNodeId])).toEqual([
    [["a", "b"], "b"],
    [["c"], "c"],
  ]);
});

it("keeps other files of a machine apart, and a part of a model from the whole", () => {
  const part = storedView("qwen", { isWhole: false, filesDigest: "", byteCount: 9, pulledAt: 0 });
  const disks = disksByModel([beside("a"), beside("b"), beside("c"), beside("d")], {
    a: [storedView("qwen")],
    b: [storedView("qwen", { filesDigest: "f1" })],
    c: [part],
    // Told a moment later, while it comes.
    d: [{ ...part, byteCount: 11 }],
  }).get("qwen");
  expect(disks?.map(({ nodeIds, bytes, isWhole }) => [nodeIds, bytes, isWhole])).toEqual([
    [["a"], 40, true],
    [["b"], 40, true],
    [["c", "d"], 11, false],
  ]);
});

it("says nothing of the disks of nodes that are gone, or that do not tell", () => {
  const nodes = [{ ...nodeView("a"), liveness: "dead" as const }, nodeView("b")];
  expect(disksByModel(nodes, { a: [storedView("qwen")] }).size).toBe(0);
});

it("copies to living nodes that lack a model, if another one has it", () => {
  const nodes = [
    {
      ...nodeView("serves"),
      models: [modelView("qwen"), { ...modelView("ngram"), kind: "ngram" as const }],
    },
    nodeView("has"),
    nodeView("has a part"),
    nodeView("brings"),
    nodeView("lacks"),
    { ...nodeView("dead"), liveness: "dead" as const },
  ];
  const transfers = [
    transferView("brings", "qwen", { kind: "download", state: "running" }),
    transferView("lacks", "qwen", { kind: "download", state: "failed" }),
    transferView("lacks", "known of old"),
  ];
  const rows = modelRows(nodes, transfers, {
    has: [storedView("qwen")],
    "has a part": [storedView("qwen", { isWhole: false }), storedView("half", { isWhole: false })],
  });
  const targets = Object.fromEntries(
    rows.map((row) => [row.modelId, copyTargets(row, nodes, transfers).map((each) => each.nodeId)]),
  );
  expect(targets).toEqual({
    qwen: ["has a part", "lacks"],
    // Nothing is to be copied of it.
    ngram: [],
    // No node is known to have all of them.
    half: [],
    "known of old": [],
  });
});
