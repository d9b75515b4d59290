import type { Liveness, NodeHistory, NodeStatus, Transfer } from "@kakeya/runtime";
import { expect, test } from "vitest";

import type { Message } from "../../shared/messages";
import { sourceView } from "../views";
import { FleetState } from "../../server/state/fleet_state";

/** A node of which nothing but its liveness is known, heard so many seconds ago. */
function status(nodeId: string, liveness: Liveness, ageSeconds = 0): NodeStatus {
  return {
    ...{ nodeId, liveness, ageSeconds, card: null, address: "", roundTripSeconds: 0 },
    isSelf: false,
  } as unknown as NodeStatus;
}

test("who left goes after a minute, whatever is told of it meanwhile; who died stays", () => {
  let now = 1_000_000;
  const state = new FleetState(
    () => undefined,
    () => now,
  );
  const shown = (): string[] => state.view().nodes.map(({ nodeId }) => nodeId);
  for (const nodeId of ["gone", "dead"]) state.changed(status(nodeId, "alive"));
  state.changed(status("gone", "left"));
  state.changed(status("dead", "dead"));
  state.changed(status("long gone", "left", 90));
  expect(shown()).toEqual(["gone", "dead"]);
  now += 59_000;
  state.changed(status("gone", "left", 59));
  state.forgetLeft();
  expect(shown()).toEqual(["gone", "dead"]);
  now += 2000;
  state.forgetLeft();
  expect(shown()).toEqual(["dead"]);
  // A gateway tells of it for days.
  state.changed(status("gone", "left", 61));
  expect(shown()).toEqual(["dead"]);
  state.changed(status("gone", "alive"));
  expect(shown()).toEqual(["dead", "gone"]);
});

test("a transfer has what was heard of its pull, in whichever order, until its node starts anew", () => {
  const told: Message[] = [];
  const state = new FleetState(
    (message) => told.push(message),
    () => 1_000_000,
  );
  const download = (doneBytes: number): Transfer => ({
    ...{ transferId: "download-1", kind: "download", state: "running", modelId: "qwen" },
    ...{ doneBytes, totalBytes: 9, bytesPerSecond: 1, remainingSeconds: 1 },
    ...{ startedAtUnix: 900, error: "" },
  });
  const history = (bootId: string): NodeHistory =>
    ({
      node: { card: { bootId, name: "a", platform: "linux", models: [] }, load: {} },
      ...{ samples: [], events: [], transfers: [download(0)] },
    }) as unknown as NodeHistory;
  const pulls = () => state.view().transfers.map(({ doneBytes, pull }) => [doneBytes, pull]);
  state.changed(status("a", "alive"));
  const pull = { sources: [sourceView("b", 4)], problem: null };
  state.history("a", history("first"));
  expect(pulls()).toEqual([[0, null]]);
  state.pull("a", "download-1", pull);
  expect(told.at(-1)).toMatchObject({ type: "transfer", transfer: { doneBytes: 0, pull } });
  state.transfer("a", download(4));
  expect(pulls()).toEqual([[4, pull]]);
  // The watch of the same node was lost, and begins again.
  state.history("a", history("first"));
  expect(pulls()).toEqual([[0, pull]]);
  // Of a later start the first download is another one.
  state.history("a", history("second"));
  expect(pulls()).toEqual([[0, null]]);
});
