/** Lines between machines: cubic curves. */

import type { Point } from "./rows";

/** What else keeps clear of: a machine with its words, or a label. */
export interface Box {
  /** The middle. */
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Curve {
  from: Point;
  /** Where it sets out for, and where it arrives from. */
  out: Point;
  into: Point;
  to: Point;
}

export function pointAt({ from, out, into, to }: Curve, t: number): Point {
  const rest = 1 - t;
  const [a, b, c, d] = [rest ** 3, 3 * rest * rest * t, 3 * rest * t * t, t ** 3];
  return {
    x: a * from.x + b * out.x + c * into.x + d * to.x,
    y: a * from.y + b * out.y + c * into.y + d * to.y,
  };
}

export function svgPath({ from, out, into, to }: Curve): string {
  const at = ({ x, y }: Point): string => `${x.toFixed(1)} ${y.toFixed(1)}`;
  return `M${at(from)}C${at(out)} ${at(into)} ${at(to)}`;
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

export function reversed({ from, out, into, to }: Curve): Curve {
  return { from: to, out: into, into: out, to: from };
}
