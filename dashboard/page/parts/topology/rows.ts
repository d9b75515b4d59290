/** Where the seats of a fleet are: in as few rows as have room for what is said of each machine. */

export interface Point {
  x: number;
  y: number;
}

/** How large a machine is drawn, in pixels. */
export interface Size {
  name: "large" | "medium" | "small";
  /** The machine with its words, at least: nothing else enters that. */
  width: number;
  height: number;
  /** The device, at its top. */
  deviceWidth: number;
  deviceHeight: number;
  /** Above each row, for the lines that pass over its machines, and for what is said of those. */
  headroom: number;
  /** Rows of a page this wide at most; a narrow one scrolls, and may have twice as many. */
  mostRows: number;
}

export const SIZES: readonly Size[] = [
  {
    name: "large",
    width: 108,
    height: 110,
    deviceWidth: 76,
    deviceHeight: 54,
    headroom: 34,
    mostRows: 1,
  },
  {
    name: "medium",
    width: 80,
    height: 91,
    deviceWidth: 54,
    deviceHeight: 38,
    headroom: 34,
    mostRows: 2,
  },
  {
    name: "small",
    width: 60,
    height: 58,
    deviceWidth: 40,
    deviceHeight: 28,
    headroom: 14,
    mostRows: Number.POSITIVE_INFINITY,
  },
];

/** Pixels from which on a page has room for a fleet beside other things. */
const WIDE = 520;
/** Pixels that a name of twenty characters takes, and what an archive keeps. */
const MOST_BOX = 148;
/** Pixels from a machine to the next, at most: what a label between two needs, and some air. */
const MOST_PITCH = 320;
/** Pixels below which nothing would fit, as before a page is laid out. */
const LEAST_WIDTH = 200;

export interface Seat extends Point {
  row: number;
  column: number;
}

export interface Rows {
  size: Size;
  width: number;
  height: number;
  /** Pixels from a seat to the next of its row. */
  pitch: number;
  /** Pixels that a machine and its words take of it. */
  boxWidth: number;
  /** Middles of the boxes, row by row from the left. */
  seats: readonly Seat[];
}

/** The rows for so many seats within so many pixels: the largest machines that need few enough. */
export function rowsFor(seatCount: number, within: number): Rows {
  const width = Math.max(within, LEAST_WIDTH);
  const size =
    SIZES.find((each) => rowCount(seatCount, width, each) <= mostRows(each, width)) ??
    SIZES[SIZES.length - 1]!;
  const rows = rowCount(seatCount, width, size);
  const tall = size.headroom + size.height;
  const longest = Math.ceil(seatCount / Math.max(1, rows));
  const pitch = Math.min(MOST_PITCH, width / Math.max(1, longest));
  // The first rows have one more where they cannot all have as many.
  const longer = seatCount - rows * (longest - 1);
  const seats = Array.from({ length: rows }, (_, row) => {
    const count = row < longer ? longest : longest - 1;
    return Array.from({ length: count }, (_, column) => ({
      row,
      column,
      x: width / 2 + (column - (count - 1) / 2) * pitch,
      y: row * tall + size.headroom + size.height / 2,
    }));
  }).flat();
  const boxWidth = Math.min(pitch, MOST_BOX);
  return { size, width, height: Math.max(1, rows) * tall, pitch, boxWidth, seats };
}

function rowCount(seatCount: number, width: number, size: Size): number {
  return Math.ceil(seatCount / Math.max(1, Math.floor(width / size.width)));
}

function mostRows(size: Size, width: number): number {
  return width < WIDE ? size.mostRows * 2 : size.mostRows;
}
