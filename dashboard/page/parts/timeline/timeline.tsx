import { memo } from "preact/compat";

import type { BlockView } from "../../../shared/messages";
import { duration, percent } from "../format";
import { summaryOf, timelineOf, type Bar, type TimelineRow, type TokenFate } from "./scale";

const FATES: Readonly<Record<TokenFate, { word: string; sign: string }>> = {
  accepted: { word: "accepted", sign: "✓" },
  own: { word: "the verifier's own", sign: "·" },
  rejected: { word: "rejected", sign: "×" },
};

/** A mark farther right would touch the next column's title. */
const LAST_MARK = 0.93;

interface TimelineProps {
  blocks: readonly BlockView[];
  /** Rows shown, the latest ones; the height is theirs also while there are fewer. */
  rowCount: number;
}

/** The last blocks, latest first: where their time went and what became of their tokens. */
export function Timeline({ blocks, rowCount }: TimelineProps) {
  const shown = blocks.slice(-rowCount);
  const { rows, marks, zero } = timelineOf(shown);
  const summary = summaryOf(shown);
  return (
    <div class="timeline">
      <p class="unseen">
        {shown.length === 0
          ? "No blocks yet."
          : `${summary.blockCount} blocks, ${summary.acceptanceLength.toFixed(2)} tokens a block, ` +
            `${percent(summary.acceptedShare)} of the drafted tokens accepted.`}
      </p>
      <div class="timeline-scale" aria-hidden="true">
        <span>block</span>
        <div class="timeline-marks">
          {marks
            .filter(({ at }) => at < LAST_MARK)
            .map(({ at, seconds }) => (
              <i key={seconds} class={seconds === 0 ? "zero" : ""} style={{ left: `${at * 100}%` }}>
                {seconds === 0
                  ? "0"
                  : duration(Math.abs(seconds))
                      .replace(/\.0+ /, " ")
                      .replace(/^/, seconds < 0 ? "−" : "")}
              </i>
            ))}
        </div>
        <span class="timeline-tokens-head">tokens</span>
        <span class="end">kept</span>
      </div>
      <ol class="timeline-rows" style={{ minHeight: `${Math.min(rowCount, 24) * 26}px` }}>
        {[...rows].reverse().map((row) => (
          <Row key={`${row.block.generation}/${row.block.firstIndex}`} row={row} zero={zero} />
        ))}
      </ol>
      <TimelineLegend />
    </div>
  );
}

const Row = memo(
  function Row({ row, zero }: { row: TimelineRow; zero: number }) {
    const { block } = row;
    const words =
      `Block at ${block.firstIndex}: ${block.accepted} of ${block.drafted} drafted tokens accepted, ` +
      `${block.committed} committed; draft ${duration(block.draftSeconds)}, wire ${duration(block.wireSeconds)}, ` +
      `wait ${duration(block.waitSeconds)}, verify ${duration(block.verifySeconds)}` +
      (block.draftedAhead ? ", drafted ahead" : "");
    return (
      <li class="timeline-row" title={words}>
        <span class="unseen">{words}</span>
        <span class="timeline-index" aria-hidden="true">
          {block.firstIndex}
        </span>
        <div class={row.proposer.length === 0 ? "lane alone" : "lane"} aria-hidden="true">
          <i class="lane-zero" style={{ left: `${zero * 100}%` }} />
          {row.proposer.map((bar) => (
            <LaneBar key={bar.kind} bar={bar} upper ahead={block.draftedAhead} />
          ))}
          {row.verifier.map((bar) => (
            <LaneBar key={bar.kind} bar={bar} upper={false} ahead={false} />
          ))}
        </div>
        <TokenCells tokens={row.tokens} />
        <span class="timeline-kept end" aria-hidden="true">
          {block.committed}
        </span>
      </li>
    );
  },
  (one, other) =>
    one.row.block === other.row.block && same(one.row, other.row) && one.zero === other.zero,
);

function same(one: TimelineRow, other: TimelineRow): boolean {
  const starts = (row: TimelineRow): string =>
    [...row.proposer, ...row.verifier].map((bar) => bar.start.toFixed(4)).join();
  return starts(one) === starts(other);
}

function LaneBar({ bar, upper, ahead }: { bar: Bar; upper: boolean; ahead: boolean }) {
  const classes = ["bar", bar.kind, upper ? "upper" : "lower"];
  if (ahead) classes.push("ahead");
  return (
    <i
      class={classes.join(" ")}
      style={{ left: `${bar.start * 100}%`, width: `max(1.5px, ${bar.width * 100}%)` }}
    />
  );
}

function TokenCells({ tokens }: { tokens: readonly TokenFate[] }) {
  return (
    <span class="cells" aria-hidden="true">
      {tokens.map((fate, index) => (
        <i key={index} class={`cell ${fate}`}>
          {FATES[fate].sign}
        </i>
      ))}
    </span>
  );
}

function TimelineLegend() {
  return (
    <div class="timeline-legend">
      {(["draft", "wire", "wait", "verify"] as const).map((kind) => (
        <span key={kind}>
          <i class={`bar sample ${kind}`} />
          {kind}
        </span>
      ))}
      <span>
        <i class="bar sample draft ahead" />
        drafted ahead
      </span>
      {(["accepted", "own", "rejected"] as const).map((fate) => (
        <span key={fate}>
          <i class={`cell ${fate}`} aria-hidden="true">
            {FATES[fate].sign}
          </i>
          {FATES[fate].word}
        </span>
      ))}
    </div>
  );
}
