/** How blocks are spread: by what each kept, and by how long each took. Pure. */

import type { BlockView } from "../../../shared/messages";
import { duration } from "../format";
import { niceStep } from "./scale";

export interface Bin {
  label: string;
  count: number;
}

/** Bars that are drawn of a time, at most; the last one has all that took longer. */
const TIME_BINS = 12;
/** Of the blocks, those that the bars before the last one have. */
const USUAL = 0.9;

/** How many blocks kept one token, two, and so on to the most. */
export function keptBins(blocks: readonly BlockView[]): Bin[] {
  const most = Math.max(0, ...blocks.map(({ committed }) => committed));
  return Array.from({ length: most }, (_, index) => ({
    label: String(index + 1),
    count: blocks.filter(({ committed }) => committed === index + 1).length,
  }));
}

/** How many forwards took how long, the verifier's waiting included, in steps of a round length. */
export function timeBins(blocks: readonly BlockView[]): Bin[] {
  const seconds = blocks
    .map(({ waitSeconds, verifySeconds }) => waitSeconds + verifySeconds)
    .sort((one, other) => one - other);
  if (seconds.length === 0) return [];
  const least = seconds[0]!;
  const usual = seconds[Math.min(seconds.length - 1, Math.floor(USUAL * seconds.length))]!;
  const step = niceStep(Math.max((usual - least) / (TIME_BINS - 2), usual / 1000, 1e-6));
  const first = Math.floor(least / step);
  const count = Math.min(TIME_BINS, Math.floor(seconds.at(-1)! / step) - first + 1);
  const bins = Array.from({ length: count }, (_, index) => ({
    label: duration((first + index) * step),
    count: 0,
  }));
  const last = bins[count - 1]!;
  if (seconds.at(-1)! >= (first + count) * step) last.label += "+";
  for (const each of seconds) {
    bins[Math.min(count - 1, Math.max(0, Math.floor(each / step) - first))]!.count += 1;
  }
  return bins;
}
