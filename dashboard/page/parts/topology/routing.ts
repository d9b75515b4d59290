/** Ways for the lines: beside, over or below the machines between, from device to device. */

import { reversed, type Box, type Curve } from "./curve";
import type { Rows, Seat } from "./rows";
import { CANVAS, shapeOf } from "./shapes";

/** Who sits where. */
export interface Machine extends Box {
  seat: Seat;
  /** The sides of its device, without the words below. */
  left: number;
  right: number;
  top: number;
  bottom: number;
}

/** A line to draw between two machines. */
export interface Link {
  key: string;
  from: Machine;
  to: Machine;
}

/** Pixels between a device and a line that ends at it. */
const GAP = 2;
/** Pixels between lines over the same row, and from the lowest to the devices. */
const LANE = 17;
const LOWEST = 9;
/** How far from its middle a line meets a device's top, of half its width. */
const ASIDE = 0.5;

/** The machine that is drawn at a seat. */
export function machineAt(seat: Seat, { size, boxWidth }: Rows, shape: string): Machine {
  const { left, right, top, bottom } = shapeOf(shape);
  const scale = size.deviceWidth / CANVAS.width;
  const begin = { x: seat.x - size.deviceWidth / 2, y: seat.y - size.height / 2 };
  return {
    seat,
    x: seat.x,
    y: seat.y,
    width: boxWidth,
    height: size.height,
    left: begin.x + left * scale,
    right: begin.x + right * scale,
    top: begin.y + top * scale,
    bottom: begin.y + bottom * scale,
  };
}

/** What a label keeps clear of: the device, and the words below it. */
export function obstaclesOf(machine: Machine, { size }: Rows): Box[] {
  const { x, y, width, height, left, right } = machine;
  const top = y - height / 2;
  const wordsHeight = height - size.deviceHeight;
  return [
    { x, y: top + size.deviceHeight / 2, width: right - left, height: size.deviceHeight },
    { x, y: top + size.deviceHeight + wordsHeight / 2, width, height: wordsHeight },
  ];
}

/**
 * A curve for each link, by key. Neighbours are joined by a straight line; over others of
 * its row a line is an arch, those that would lie on each other at different heights; a
 * line to another row goes along the room above the lower one.
 */
export function routed(links: readonly Link[], rows: Rows): ReadonlyMap<string, Curve> {
  const curves = new Map<string, Curve>();
  const lanes = new Lanes(Math.max(1, Math.floor(rows.size.headroom / LANE)));
  const shortFirst = [...links].sort((one, other) => span(one) - span(other));
  for (const { key, from, to } of shortFirst) {
    const forward =
      from.seat.row < to.seat.row ||
      (from.seat.row === to.seat.row && from.seat.column <= to.seat.column);
    const [first, last] = forward ? [from, to] : [to, from];
    const curve =
      first.seat.row !== last.seat.row
        ? down(first, last, rows)
        : last.seat.column - first.seat.column <= 1
          ? straight(first, last)
          : over(first, last, lanes, rows);
    curves.set(key, forward ? curve : reversed(curve));
  }
  return curves;
}

function span({ from, to }: Link): number {
  return Math.abs(from.x - to.x);
}

function straight(first: Machine, last: Machine): Curve {
  const from = { x: first.right + GAP, y: middle(first) };
  const to = { x: last.left - GAP, y: middle(last) };
  const at = (part: number) => ({
    x: from.x + (to.x - from.x) * part,
    y: from.y + (to.y - from.y) * part,
  });
  return { from, out: at(1 / 3), into: at(2 / 3), to };
}

function over(first: Machine, last: Machine, lanes: Lanes, rows: Rows): Curve {
  const from = { x: first.x + aside(first), y: first.top - GAP };
  const to = { x: last.x - aside(last), y: last.top - GAP };
  const lane = lanes.take(first.seat.row, from.x, to.x);
  const peak = rowTop(first, rows) - LOWEST - lane * LANE;
  // A cubic whose controls are at one height comes three quarters of the way to it.
  const height = peak - (from.y + to.y) / 2;
  const control = (from.y + to.y) / 2 + (height * 4) / 3;
  return { from, out: { x: from.x, y: control }, into: { x: to.x, y: control }, to };
}

/** Leaves beside the upper one's words, and comes to the lower one from above. */
function down(upper: Machine, lower: Machine, rows: Rows): Curve {
  const gutter = rowTop(lower, rows) - rows.size.headroom / 2;
  const side = lower.x >= upper.x ? 1 : -1;
  const from = { x: (side > 0 ? upper.right : upper.left) + GAP * side, y: middle(upper) };
  const to = { x: lower.x - aside(lower) * side, y: lower.top - GAP };
  if (Math.abs(lower.x - upper.x) < rows.pitch / 2) to.x = lower.x + aside(lower) * side;
  // Both somewhat beyond: it is between the columns, and below the words, before it turns.
  const between = upper.x + rows.pitch * 0.65 * side;
  const out = { x: between, y: gutter + (gutter - from.y) / 2 };
  return { from, out, into: { x: to.x, y: gutter - LOWEST }, to };
}

function middle(machine: Machine): number {
  return (machine.top + machine.bottom) / 2;
}

function aside(machine: Machine): number {
  return ((machine.right - machine.left) / 2) * ASIDE;
}

/** Where the boxes of a machine's row begin. */
function rowTop(machine: Machine, rows: Rows): number {
  return machine.y - rows.size.height / 2;
}

/** Heights over each row, each taken along a stretch. */
class Lanes {
  readonly #count: number;
  readonly #taken = new Map<number, { lane: number; from: number; to: number }[]>();

  constructor(count: number) {
    this.#count = count;
  }

  /** The lowest one that is free along the stretch; the highest where none is. */
  take(row: number, from: number, to: number): number {
    const taken = this.#taken.get(row) ?? [];
    this.#taken.set(row, taken);
    let lane = 0;
    while (
      lane < this.#count - 1 &&
      taken.some((each) => each.lane === lane && each.from < to && from < each.to)
    ) {
      lane += 1;
    }
    taken.push({ lane, from, to });
    return lane;
  }
}
