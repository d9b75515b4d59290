import { describe, expect, it } from "vitest";

import type { PlanView } from "../../../shared/messages";
import { advanced, ASKED, grown, runLengths, speed, textOf } from "./answer";

describe("an answer", () => {
  it("joins tokens of one kind, and keeps each piece", () => {
    let runs = grown([], ["a", "b", "c"], 2);
    expect(runs).toEqual([
      { drafted: true, pieces: ["a", "b"] },
      { drafted: false, pieces: ["c"] },
    ]);
    runs = grown(runs, ["d"], 0);
    expect(runs[1]!.pieces).toEqual(["c", "d"]);
    expect(grown(runs, [], 0)).toEqual(runs);
    expect(runLengths(runs)).toEqual([0, 2, 2]);
    expect(runLengths(grown([], ["a", "bc"], 0))).toEqual([3]);
    expect(textOf({ ...ASKED, runs })).toBe("abcd");
  });

  it("says how far its prompt is read until it begins", () => {
    let state = advanced(ASKED, { type: "reading", readCount: 1200, tokenCount: 4000 }, 1000);
    expect(state).toMatchObject({
      phase: "opening",
      reading: { readCount: 1200, tokenCount: 4000 },
    });
    const held = { historyLength: 4000, keptTokenCount: 0, plan: {} as PlanView };
    state = advanced(
      state,
      { type: "opened", sessionKey: "k", sessionId: "s", nodeId: "n", ...held },
      2000,
    );
    expect(state).toMatchObject({ phase: "generating", reading: null });
  });

  it("counts, and tells the speed after the first token", () => {
    let state = advanced(ASKED, { type: "tokens", firstIndex: 5, pieces: ["a"], drafted: 0 }, 1000);
    expect(speed(state)).toBeNaN();
    state = advanced(
      state,
      { type: "tokens", firstIndex: 6, pieces: ["b", "c"], drafted: 1 },
      1500,
    );
    expect(state.tokenCount).toBe(3);
    expect(state.draftedCount).toBe(1);
    expect(speed(state)).toBe(4);
  });

  it("that fails keeps what came before", () => {
    let state = advanced(ASKED, { type: "tokens", firstIndex: 0, pieces: ["a"], drafted: 0 }, 1);
    const problem = { reason: "R", message: "m", mend: "" };
    state = advanced(state, { type: "problem", problem }, 2);
    expect(state).toMatchObject({ phase: "failed", tokenCount: 1, problem });
  });
});
