import { expect, test } from "vitest";

import type { ModelView, NodeView } from "../../shared/messages";
import { nodeView, sampleView, sessionView } from "../../tests/views";
import { activitiesOf, draftAcceptances } from "./activity";

function serving(roles: readonly ModelView["role"][], archiveBudgetBytes = 0): NodeView {
  return {
    ...nodeView("a"),
    models: roles.map((role) => ({ role, modelId: role }) as ModelView),
    archiveBudgetBytes,
    archiveBytes: archiveBudgetBytes / 4,
    samples: [{ ...sampleView(1000), tokensPerSecond: 0, draftsPerSecond: 23.1 }],
  };
}

function figures(node: NodeView): string[] {
  return activitiesOf(node).map(({ value, unit }) => `${value} ${unit}`);
}

test("each role has its own figure, and none that is not its own", () => {
  expect(figures(serving(["proposer"]))).toEqual(["23.1 drafts/s"]);
  expect(figures(serving([], 2 ** 29))).toEqual(["128 MiB kept"]);
  expect(figures(serving(["proposer", "verifier"], 2 ** 30))).toEqual([
    "0 tok/s",
    "23.1 drafts/s",
    "256 MiB kept",
  ]);
  expect(figures(serving([]))).toEqual([]);
  const [kept] = activitiesOf(serving([], 2 ** 29));
  expect(`${kept?.roomy} ${kept?.roomyUnit}`).toBe("128 of 512 MiB");
});

test("a proposer's acceptance is that of the sessions that its drafts are for", () => {
  const drafts = { proposerNodeId: "p", draftedCount: 10 };
  const sessions = [
    { ...sessionView("a", "1"), ...drafts, acceptedCount: 9 },
    { ...sessionView("b", "2"), ...drafts, acceptedCount: 3 },
    { ...sessionView("b", "3"), proposerNodeId: "q" },
    { ...sessionView("b", "4"), draftedCount: 5, acceptedCount: 5 },
  ];
  expect([...draftAcceptances(sessions)]).toEqual([["p", 0.6]]);
});
