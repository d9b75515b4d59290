import type { Liveness, NodeStatus } from "@kakeya/runtime";
import { expect, test } from "vitest";

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
