import { expect, it } from "vitest";

import { modelView, nodeView, sourceView, storedView, transferView } from "../../../tests/views";
import { modelRows } from "./model_rows";

it("tells of each model who serves it since when, how large it is, and who has its files", () => {
  const nodes = [
    { ...nodeView("a"), startedAt: 5, models: [modelView("tiny", "proposer")] },
    { ...nodeView("b"), startedAt: 7, models: [modelView("tiny"), modelView("qwen")] },
    { ...nodeView("c"), liveness: "dead" as const },
  ];
  const transfers = [
    transferView("b", "tiny", { totalBytes: 40, startedAt: 9 }),
    transferView("b", "tiny", { transferId: "t2", totalBytes: 40, startedAt: 11 }),
    transferView("a", "qwen", { kind: "download", totalBytes: 90 }),
    transferView("c", "qwen", { kind: "download", totalBytes: 90 }),
    transferView("a", "gone", { state: "failed" }),
    transferView("a", "kept", { totalBytes: 3 }),
  ];
  const rows = modelRows(nodes, transfers);
  expect(rows.map(({ modelId }) => modelId)).toEqual(["qwen", "tiny", "kept"]);
  const [qwen, tiny, kept] = rows;
  expect(tiny?.holders.map(({ nodeId, since }) => [nodeId, since])).toEqual([
    ["b", 11],
    ["a", 5],
  ]);
  expect(tiny?.bytes).toBe(40);
  // A download says how large files are, not what is loaded of them.
  expect(qwen?.bytes).toBe(0);
  expect(qwen?.earlierNodeIds).toEqual(["a"]);
  expect(kept).toMatchObject({ offer: undefined, holders: [], earlierNodeIds: ["a"] });
});

it("knows of copies between nodes by what their disks have, and not by how they came", () => {
  const pull = { sources: [sourceView("b", 40)], problem: null };
  const transfers = [
    transferView("a", "removed", { kind: "download", pull }),
    transferView("a", "copied", { kind: "download", pull }),
    transferView("a", "loaded", { totalBytes: 3 }),
  ];
  const nodes = [nodeView("a"), nodeView("b")];
  const rows = modelRows(nodes, transfers, { a: [storedView("copied"), storedView("loaded")] });
  expect(rows.map(({ modelId, disks, earlierNodeIds }) => [modelId, disks.length, earlierNodeIds]))
    // What is on a disk is not said to have been there before as well.
    .toEqual([
      ["copied", 1, []],
      ["loaded", 1, []],
    ]);
});
