import { describe, expect, it } from "vitest";

import type { BlockView } from "../../../shared/messages";
import { fatesOf, niceStep, summaryOf, timelineOf } from "./scale";

function block(part: Partial<BlockView> = {}): BlockView {
  return {
    firstIndex: 0,
    drafted: 4,
    accepted: 2,
    committed: 3,
    draftSeconds: 0.01,
    wireSeconds: 0.002,
    waitSeconds: 0.012,
    verifySeconds: 0.03,
    draftedAhead: false,
    startSeconds: 0,
    generation: 1,
    ...part,
  };
}

describe("the timeline", () => {
  it("draws bars to scale, one after the other", () => {
    const { rows, spanSeconds, zero } = timelineOf([block()]);
    expect(spanSeconds).toBeCloseTo(0.042);
    expect(zero).toBe(0);
    const [draft, wire] = rows[0]!.proposer;
    const [wait, verify] = rows[0]!.verifier;
    expect(draft!.width / wire!.width).toBeCloseTo(5);
    expect(draft!.start + draft!.width).toBeCloseTo(wire!.start);
    expect(wire!.start + wire!.width).toBeCloseTo(verify!.start);
    expect(wait!.width).toBeCloseTo(0.012 / 0.042);
    expect(verify!.start + verify!.width).toBeCloseTo(1);
  });

  it("puts what was hidden behind the last forward before zero", () => {
    const ahead = block({ waitSeconds: 0, draftedAhead: true });
    const { rows, zero, marks } = timelineOf([ahead, block()]);
    expect(zero).toBeCloseTo(0.012 / 0.054);
    expect(rows[0]!.proposer[0]!.start).toBeCloseTo(0);
    expect(rows[0]!.verifier).toHaveLength(1);
    expect(rows[0]!.verifier[0]!.start).toBeCloseTo(zero);
    expect(marks.some((mark) => mark.seconds === 0 && Math.abs(mark.at - zero) < 1e-9)).toBe(true);
  });

  it("never leaves its row, whatever one block took", () => {
    const slow = block({ draftSeconds: 9, waitSeconds: 0 });
    for (const { proposer, verifier } of timelineOf([block(), slow, block()]).rows) {
      for (const bar of [...proposer, ...verifier]) {
        expect(bar.start).toBeGreaterThanOrEqual(0);
        expect(bar.start + bar.width).toBeLessThanOrEqual(1 + 1e-9);
      }
    }
  });

  it("of nothing is empty, and of a block without times too", () => {
    expect(timelineOf([]).rows).toEqual([]);
    const none = { draftSeconds: 0, wireSeconds: 0, waitSeconds: 0, verifySeconds: 0 };
    expect(timelineOf([block(none)]).rows[0]!.verifier).toEqual([]);
  });

  it("has a cell for each drafted token and each of the verifier's own", () => {
    expect(fatesOf(block())).toEqual(["accepted", "accepted", "own", "rejected", "rejected"]);
    expect(fatesOf(block({ drafted: 0, accepted: 0, committed: 1 }))).toEqual(["own"]);
    // The last block of a generation may stop within what it accepted.
    expect(fatesOf(block({ accepted: 4, committed: 3 }))).toEqual(Array(3).fill("accepted"));
  });

  it("has round steps", () => {
    expect(niceStep(0.0031)).toBeCloseTo(0.005);
    expect(niceStep(0.01)).toBeCloseTo(0.01);
    expect(niceStep(7)).toBe(10);
    expect(niceStep(0)).toBe(1);
  });

  it("sums up", () => {
    const summary = summaryOf([block(), block({ drafted: 4, accepted: 4, committed: 5 })]);
    expect(summary.acceptanceLength).toBe(4);
    expect(summary.acceptedShare).toBe(0.75);
    expect(summaryOf([]).acceptanceLength).toBeNaN();
  });
});
