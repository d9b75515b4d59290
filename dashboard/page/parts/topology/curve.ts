/** Links as curves that bow towards the middle, so that they keep clear of the nodes between. */

import type { Point } from "./ring";

export interface Box {
  /** The middle. */
  x: number;
  y: number;
  width: number;
  height: number;
}

/** A quadratic curve from the edge of one box to that of another. */
export interface Curve {
  from: Point;
  control: Point;
  to: Point;
}

/** Pixels between a box and the line that leaves it. */
const GAP = 3;

/**
 * Each line leaves its box halfway between the direction of the middle and that
 * of the other node, so that also neighbours are joined by a curve that is seen.
 */
export function linkCurve(from: Box, to: Box, middle: Point, bow: number): Curve {
  const start = port(from, to, middle);
  const end = port(to, from, middle);
  const between = { x: (start.x + end.x) / 2, y: (start.y + end.y) / 2 };
  const control = {
    x: between.x + (middle.x - between.x) * bow,
    y: between.y + (middle.y - between.y) * bow,
  };
  return { from: start, control, to: end };
}

/** Where a line leaves the box. */
function port(box: Box, other: Point, middle: Point): Point {
  const inwards = direction(box, middle);
  const across = direction(box, other);
  // One in the middle has no way inwards.
  const aim = { x: inwards.x + across.x, y: inwards.y + across.y };
  const reach = Math.min(
    (box.width / 2 + GAP) / Math.max(1e-9, Math.abs(aim.x)),
    (box.height / 2 + GAP) / Math.max(1e-9, Math.abs(aim.y)),
  );
  return { x: box.x + aim.x * reach, y: box.y + aim.y * reach };
}

function direction(from: Point, to: Point): Point {
  const length = Math.hypot(to.x - from.x, to.y - from.y);
  return length < 1 ? { x: 0, y: 0 } : { x: (to.x - from.x) / length, y: (to.y - from.y) / length };
}

export function pointAt({ from, control, to }: Curve, t: number): Point {
  const rest = 1 - t;
  return {
    x: rest * rest * from.x + 2 * rest * t * control.x + t * t * to.x,
    y: rest * rest * from.y + 2 * rest * t * control.y + t * t * to.y,
  };
}

export function svgPath({ from, control, to }: Curve): string {
  const at = ({ x, y }: Point): string => `${x.toFixed(1)} ${y.toFixed(1)}`;
  return `M${at(from)}Q${at(control)} ${at(to)}`;
}

export function curveLength(curve: Curve): number {
  let length = 0;
  let before = curve.from;
  for (let step = 1; step <= 16; step += 1) {
    const next = pointAt(curve, step / 16);
    length += Math.hypot(next.x - before.x, next.y - before.y);
    before = next;
  }
  return length;
}
