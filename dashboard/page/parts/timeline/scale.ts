/** Blocks as bars over a common scale of time, and as a cell for each token. */

import type { BlockView } from "../../../shared/messages";

export type BarKind = "draft" | "wire" | "wait" | "verify";
export type TokenFate = "accepted" | "own" | "rejected";

/** A stretch of a row, as shares of the row's width. */
export interface Bar {
  kind: BarKind;
  start: number;
  width: number;
  seconds: number;
}

export interface TimelineRow {
  block: BlockView;
  /** The proposer's draft and its way here; ends when the verifier had it. */
  proposer: readonly Bar[];
  /** The verifier's waiting and its forward. */
  verifier: readonly Bar[];
  tokens: readonly TokenFate[];
}

export interface Timeline {
  rows: readonly TimelineRow[];
  /** Seconds of a row's whole width. */
  spanSeconds: number;
  /** Where the verifier begins to wait, or to verify: the zero of the scale. */
  zero: number;
  marks: readonly { at: number; seconds: number }[];
}

/**
 * In each row zero is where the verifier was ready for the block: what was
 * drafted ahead lies before it, hidden behind the last forward; waiting and the
 * verify forward come after it.
 */
export function timelineOf(blocks: readonly BlockView[]): Timeline {
  let before = 0;
  let after = 0;
  for (const block of blocks) {
    before = Math.max(before, block.draftSeconds + block.wireSeconds - block.waitSeconds);
    after = Math.max(after, block.waitSeconds + block.verifySeconds);
  }
  // One slow block shall not squeeze all others: what is far longer than usual is cut.
  before = Math.min(before, after * 1.5);
  const step = niceStep((before + after) / 5);
  const spanSeconds = before + after > 0 ? before + after : 1;
  const zero = before / spanSeconds;
  return {
    rows: blocks.map((block) => rowOf(block, before, spanSeconds)),
    spanSeconds,
    zero,
    marks: marksOf(before, after, step, spanSeconds),
  };
}

function rowOf(block: BlockView, before: number, span: number): TimelineRow {
  const bar = (kind: BarKind, from: number, seconds: number): Bar[] => {
    const start = Math.max(0, (from + before) / span);
    const end = Math.min(1, (from + seconds + before) / span);
    return end > start ? [{ kind, start, width: end - start, seconds }] : [];
  };
  const { draftSeconds, wireSeconds, waitSeconds, verifySeconds } = block;
  const arrived = waitSeconds;
  return {
    block,
    proposer: [
      ...bar("draft", arrived - wireSeconds - draftSeconds, draftSeconds),
      ...bar("wire", arrived - wireSeconds, wireSeconds),
    ],
    verifier: [...bar("wait", 0, waitSeconds), ...bar("verify", waitSeconds, verifySeconds)],
    tokens: fatesOf(block),
  };
}

/** The accepted ones, the verifier's own in their wake, then the drafted ones it refused. */
export function fatesOf(block: BlockView): TokenFate[] {
  const accepted = Math.min(block.accepted, block.committed);
  return [
    ...new Array<TokenFate>(accepted).fill("accepted"),
    ...new Array<TokenFate>(Math.max(0, block.committed - accepted)).fill("own"),
    ...new Array<TokenFate>(Math.max(0, block.drafted - block.accepted)).fill("rejected"),
  ];
}

function marksOf(
  before: number,
  after: number,
  step: number,
  span: number,
): { at: number; seconds: number }[] {
  const marks: { at: number; seconds: number }[] = [];
  for (let index = -Math.floor(before / step); index * step <= after; index += 1) {
    marks.push({ at: (index * step + before) / span, seconds: index * step });
  }
  return marks;
}

/** 1, 2 or 5 times a power of ten, at least `least`. */
export function niceStep(least: number): number {
  if (!(least > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(least));
  const factor = [1, 2, 5, 10].find((each) => each * power >= least * 0.999) ?? 10;
  return factor * power;
}

/** Means over blocks; NaN for those of none. */
export interface BlockSummary {
  blockCount: number;
  acceptanceLength: number;
  acceptedShare: number;
  aheadShare: number;
  /** Seconds of verifying of all seconds of the verifier. */
  verifyShare: number;
}

export function summaryOf(blocks: readonly BlockView[]): BlockSummary {
  const sum = (of: (block: BlockView) => number): number =>
    blocks.reduce((total, block) => total + of(block), 0);
  const drafted = sum((block) => block.drafted);
  const verify = sum((block) => block.verifySeconds);
  return {
    blockCount: blocks.length,
    acceptanceLength: sum((block) => block.committed) / blocks.length,
    acceptedShare: drafted > 0 ? sum((block) => block.accepted) / drafted : Number.NaN,
    aheadShare: sum((block) => Number(block.draftedAhead)) / blocks.length,
    verifyShare: verify / (verify + sum((block) => block.waitSeconds)),
  };
}
