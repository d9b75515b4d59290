/** Machines drawn by hand in a box of 96 by 68. */

/** The box that every shape is drawn in. */
export const CANVAS = { width: 96, height: 68 };

export interface Shape {
  /** What is filled. */
  body: string;
  /** Drawn over the fill, thinner. */
  details: string;
  /** Small parts that are filled: feet, lights. */
  solid: string;
  /** The body's sides: what a line ends at. */
  left: number;
  right: number;
  top: number;
  bottom: number;
}

const SHAPES: Readonly<Record<string, Shape>> = {
  "mac-mini": {
    body: "M18 17h60a9 9 0 0 1 9 9v22a9 9 0 0 1-9 9H18a9 9 0 0 1-9-9V26a9 9 0 0 1 9-9z",
    details: "M19 51.500h6M29 51.500h6M44 51.500h3",
    solid: "M24 59.500h48l-2 3H26zM78 50.200a1.300 1.300 0 1 1 0 2.600a1.300 1.300 0 0 1 0-2.600z",
    left: 9,
    right: 87,
    top: 17,
    bottom: 57,
  },
  "mac-studio": {
    body: "M22 4h52a8 8 0 0 1 8 8v42a8 8 0 0 1-8 8H22a8 8 0 0 1-8-8V12a8 8 0 0 1 8-8z",
    details: "M24 55.500h5M33 55.500h5M55 55.500h10",
    solid:
      "M24 64h48l-1.500 2.500H25.500zM74 54.200a1.300 1.300 0 1 1 0 2.600a1.300 1.300 0 0 1 0-2.600z",
    left: 14,
    right: 82,
    top: 4,
    bottom: 62,
  },
  macbook: {
    body: "M20 5h56a5 5 0 0 1 5 5v43H15V10a5 5 0 0 1 5-5z",
    details: "M42 5v1.500a2 2 0 0 0 2 2h8a2 2 0 0 0 2-2V5",
    solid: "M4 55.500h37q1 2.500 3 2.500h8q2 0 3-2.500h37v1.500q0 5-6 5H10q-6 0-6-5z",
    left: 15,
    right: 81,
    top: 5,
    bottom: 53,
  },
  linux: {
    body: "M28 3h40a5 5 0 0 1 5 5v51a5 5 0 0 1-5 5H28a5 5 0 0 1-5-5V8a5 5 0 0 1 5-5z",
    details: "M31 10.500h17M31 15h17M31 56.500h34M31 52h34",
    solid: "M30 65h7v2h-7zM59 65h7v2h-7zM63.500 10.800a2 2 0 1 1 0 4a2 2 0 0 1 0-4z",
    left: 23,
    right: 73,
    top: 3,
    bottom: 64,
  },
  computer: {
    body: "M17 7h62a5 5 0 0 1 5 5v36a5 5 0 0 1-5 5H17a5 5 0 0 1-5-5V12a5 5 0 0 1 5-5z",
    details: "",
    solid: "M43 54.500h10l1.500 6H62a1.500 1.500 0 0 1 0 3H34a1.500 1.500 0 0 1 0-3h7.500z",
    left: 12,
    right: 84,
    top: 7,
    bottom: 53,
  },
};

const PLAIN = SHAPES["computer"]!;

/** What a machine of this name looks like; a screen where it is not known. */
export function shapeOf(name: string): Shape {
  return SHAPES[name] ?? PLAIN;
}
