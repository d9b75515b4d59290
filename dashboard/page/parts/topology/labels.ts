/** Places for the links' labels: beside their own line, on no other line, node or label. */

import { pointAt, type Box, type Curve } from "./curve";
import type { Point } from "./rows";

export interface LabelledCurve {
  key: string;
  curve: Curve;
  width: number;
  height: number;
}

/** Where a label is, and the point of its line that it tells of. */
export interface LabelPlace extends Point {
  anchor: Point;
  /** So far off that a thin leader joins the two. */
  far: boolean;
}

interface Candidate extends Box {
  anchor: Point;
  cost: number;
}

/** Where along a line a label is tried, best first. */
const STOPS = [0.5, 0.42, 0.58, 0.34, 0.66, 0.27, 0.73, 0.2, 0.8];
/** Pixels between a label and any line. */
const CLEARANCE = 4;
/** Pixels between a label and its line from which on a leader joins them. */
const FAR = 9;
const SAMPLES = 28;

/**
 * The middles of labels by key; those that fit nowhere are absent. `curves` are
 * all lines that are drawn, `boxes` all nodes, `area` what the labels stay in.
 * Earlier labels are placed first.
 */
export function placeLabels(
  labels: readonly LabelledCurve[],
  curves: readonly Curve[],
  boxes: readonly Box[],
  area: { width: number; height: number },
): ReadonlyMap<string, LabelPlace> {
  const lines = curves.map(samplesOf);
  const taken: Box[] = [...boxes];
  const places = new Map<string, LabelPlace>();
  for (const label of labels) {
    const place = candidates(label).find((box) => free(box, lines, taken, area));
    if (place === undefined) continue;
    const { x, y, anchor } = place;
    const aside = Math.max(
      Math.abs(x - anchor.x) - label.width / 2,
      Math.abs(y - anchor.y) - label.height / 2,
    );
    places.set(label.key, { x, y, anchor, far: aside > FAR });
    taken.push(place);
  }
  return places;
}

function candidates({ curve, width, height }: LabelledCurve): Candidate[] {
  return STOPS.flatMap((t) => {
    const at = pointAt(curve, t);
    const before = pointAt(curve, t - 0.02);
    const after = pointAt(curve, t + 0.02);
    const length = Math.hypot(after.x - before.x, after.y - before.y) || 1;
    const normal = { x: -(after.y - before.y) / length, y: (after.x - before.x) / length };
    // As far off as the label's extent in that direction, so that its corner just clears the line.
    const reach = (Math.abs(normal.x) * width + Math.abs(normal.y) * height) / 2 + CLEARANCE + 1.5;
    const upward = normal.y > 0 ? -1 : 1;
    return [upward, -upward].flatMap((side) =>
      [0, 9, 18, 30].map((further) => ({
        x: at.x + normal.x * (reach + further) * side,
        y: at.y + normal.y * (reach + further) * side,
        width,
        height,
        anchor: at,
        cost: further + Math.abs(t - 0.5) * 40,
      })),
    );
  }).sort((one, other) => one.cost - other.cost);
}

function free(
  box: Box,
  lines: readonly (readonly Point[])[],
  taken: readonly Box[],
  area: { width: number; height: number },
): boolean {
  const left = box.x - box.width / 2;
  const top = box.y - box.height / 2;
  if (left < 2 || top < 2) return false;
  if (left + box.width > area.width - 2 || top + box.height > area.height - 2) return false;
  if (taken.some((other) => overlap(box, other, 2))) return false;
  return !lines.some((line) =>
    line.some((point, index) => index > 0 && crosses(box, line[index - 1]!, point)),
  );
}

export function overlap(one: Box, other: Box, gap = 0): boolean {
  return (
    Math.abs(one.x - other.x) < (one.width + other.width) / 2 + gap &&
    Math.abs(one.y - other.y) < (one.height + other.height) / 2 + gap
  );
}

/** Whether a stretch of a line enters the box, by clipping it to the box's sides. */
export function crosses(box: Box, from: Point, to: Point, gap = CLEARANCE - 1): boolean {
  let enter = 0;
  let leave = 1;
  const sides = [
    [from.x - box.x, to.x - from.x, box.width / 2 + gap],
    [from.y - box.y, to.y - from.y, box.height / 2 + gap],
  ] as const;
  for (const [offset, step, half] of sides) {
    if (step === 0) {
      if (Math.abs(offset) > half) return false;
      continue;
    }
    const one = (-half - offset) / step;
    const other = (half - offset) / step;
    enter = Math.max(enter, Math.min(one, other));
    leave = Math.min(leave, Math.max(one, other));
  }
  return enter <= leave;
}

export function samplesOf(curve: Curve): Point[] {
  return Array.from({ length: SAMPLES + 1 }, (_, index) => pointAt(curve, index / SAMPLES));
}
