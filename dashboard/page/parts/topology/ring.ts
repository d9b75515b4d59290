/**
 * Where the seats of a fleet are: equally spread round a superellipse, in a
 * measure of distance in which two boxes that are one apart do not overlap.
 */

export interface Point {
  x: number;
  y: number;
}

/** How large a node is drawn: the box that nothing else enters, in pixels. */
export interface Size {
  name: "huge" | "large" | "medium" | "small" | "tiny" | "dot";
  width: number;
  height: number;
  /** The device within the box, from its top. */
  deviceWidth: number;
  deviceHeight: number;
}

export const SIZES: readonly Size[] = [
  { name: "huge", width: 150, height: 132, deviceWidth: 108, deviceHeight: 76 },
  { name: "large", width: 112, height: 104, deviceWidth: 82, deviceHeight: 58 },
  { name: "medium", width: 88, height: 82, deviceWidth: 58, deviceHeight: 41 },
  { name: "small", width: 62, height: 60, deviceWidth: 42, deviceHeight: 30 },
  { name: "tiny", width: 44, height: 40, deviceWidth: 38, deviceHeight: 27 },
  { name: "dot", width: 34, height: 30, deviceWidth: 31, deviceHeight: 22 },
];

/** How round the ring is: 2 is an ellipse, more uses the corners. */
const EXPONENT = 2.5;
const STEPS = 360;
/** Pixels between neighbours, of the box's own size. */
const SLACK = 1.06;
/** Pixels from the ring's boxes to the edge. */
const MARGIN = 6;

/** Pixels below which no ring would fit, as before a page is laid out. */
const LEAST_WIDTH = 200;

export interface Ring {
  size: Size;
  width: number;
  height: number;
  /** Middles of the boxes, clockwise from the top. */
  seats: readonly Point[];
}

/**
 * The ring for so many seats within so many pixels: the largest boxes that fit in the
 * height that such a width deserves; more height only for the smallest ones.
 */
export function ringFor(seatCount: number, within: number): Ring {
  const width = Math.max(within, LEAST_WIDTH);
  const height = Math.round(Math.min(560, Math.max(340, width * 0.54)));
  const largest = seatCount <= 4 && width >= 520 ? 0 : width >= 430 || seatCount <= 3 ? 1 : 2;
  for (const size of SIZES.slice(largest)) {
    // A narrow page may scroll: it gets a tall ring before it gets small boxes.
    const most = width < 520 ? Math.max(height, width * 1.5) : Math.min(620, height * 1.3);
    for (let tried = height; tried <= most; tried += 20) {
      const seats = spread(seatCount, width, tried, size);
      if (seats !== undefined) return { size, width, height: tried, seats };
    }
  }
  const size = SIZES[SIZES.length - 1]!;
  for (let tried = height; ; tried += 20) {
    const seats = spread(seatCount, width, tried, size);
    if (seats !== undefined) return { size, width, height: tried, seats };
  }
}

function spread(
  seatCount: number,
  width: number,
  height: number,
  size: Size,
): readonly Point[] | undefined {
  const middle = { x: width / 2, y: height / 2 };
  if (seatCount <= 1) return [middle];
  const across = middle.x - size.width / 2 - MARGIN;
  const up = middle.y - size.height / 2 - MARGIN;
  if (across <= 0 || up < 0) return undefined;
  const path = Array.from({ length: STEPS + 1 }, (_, index) =>
    onCurve((index / STEPS) * 2 * Math.PI, across, up),
  );
  const lengths = [0];
  for (let index = 1; index <= STEPS; index += 1) {
    lengths.push(lengths[index - 1]! + boxDistance(path[index - 1]!, path[index]!, size));
  }
  const total = lengths[STEPS]!;
  // An odd fleet has one at the top; an even one a flat top.
  const turn = seatCount % 2 === 0 ? 0.5 : 0;
  const seats: Point[] = [];
  let index = 0;
  for (let seat = 0; seat < seatCount; seat += 1) {
    const wanted = ((seat + turn) / seatCount) * total;
    while (index < STEPS && lengths[index + 1]! < wanted) index += 1;
    const from = path[index]!;
    const to = path[Math.min(STEPS, index + 1)]!;
    const step = lengths[Math.min(STEPS, index + 1)]! - lengths[index]!;
    const part = step > 0 ? (wanted - lengths[index]!) / step : 0;
    seats.push({
      x: middle.x + from.x + (to.x - from.x) * part,
      y: middle.y + from.y + (to.y - from.y) * part,
    });
  }
  const placed = stretched(seats, width, height, size);
  return apart(placed, size) ? placed : undefined;
}

/** Few seats need not touch the ring's bottom: they are drawn apart until the area is used. */
function stretched(
  seats: readonly Point[],
  width: number,
  height: number,
  size: Size,
): readonly Point[] {
  const wider = axisStretch(
    seats.map((seat) => seat.x),
    size.width / 2 + MARGIN,
    width - size.width / 2 - MARGIN,
  );
  const taller = axisStretch(
    seats.map((seat) => seat.y),
    size.height / 2 + MARGIN,
    height - size.height / 2 - MARGIN,
  );
  return seats.map((seat) => ({ x: wider(seat.x), y: taller(seat.y) }));
}

/** Takes the least of `values` to `low` and the greatest to `high`; what lies on one line stays there. */
function axisStretch(
  values: readonly number[],
  low: number,
  high: number,
): (value: number) => number {
  const least = Math.min(...values);
  const extent = Math.max(...values) - least;
  if (extent < 1) return (value) => value;
  return (value) => low + ((value - least) / extent) * (high - low);
}

/** Clockwise from the top, about the origin. */
function onCurve(angle: number, across: number, up: number): Point {
  const bend = (value: number): number => Math.sign(value) * Math.abs(value) ** (2 / EXPONENT);
  return { x: across * bend(Math.sin(angle)), y: -up * bend(Math.cos(angle)) };
}

function boxDistance(one: Point, other: Point, size: Size): number {
  return Math.max(Math.abs(one.x - other.x) / size.width, Math.abs(one.y - other.y) / size.height);
}

function apart(seats: readonly Point[], size: Size): boolean {
  return seats.every((seat, index) =>
    seats.slice(index + 1).every((other) => boxDistance(seat, other, size) >= SLACK),
  );
}
