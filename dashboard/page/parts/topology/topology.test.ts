import { describe, expect, it } from "vitest";

import { linkCurve, type Box, type Curve } from "./curve";
import { crosses, overlap, placeLabels, samplesOf } from "./labels";
import { ringFor } from "./ring";
import { seated, type Seating } from "./seating";

const WIDTHS = [326, 520, 820, 1200];
const COUNTS = Array.from({ length: 49 }, (_, index) => index + 2);

function boxesOf(ring: ReturnType<typeof ringFor>): Box[] {
  return ring.seats.map((seat) => ({ ...seat, width: ring.size.width, height: ring.size.height }));
}

describe("the ring", () => {
  it.each(WIDTHS)("of 2 to 50 nodes in %d pixels overlaps nowhere and stays within", (width) => {
    for (const count of COUNTS) {
      const ring = ringFor(count, width);
      const boxes = boxesOf(ring);
      expect(boxes).toHaveLength(count);
      boxes.forEach((box, index) => {
        expect(boxes.slice(index + 1).some((other) => overlap(box, other))).toBe(false);
        expect(box.x - box.width / 2).toBeGreaterThanOrEqual(0);
        expect(box.x + box.width / 2).toBeLessThanOrEqual(width);
        expect(box.y - box.height / 2).toBeGreaterThanOrEqual(0);
        expect(box.y + box.height / 2).toBeLessThanOrEqual(ring.height);
      });
    }
  });

  it("is the same each time", () => {
    for (const count of COUNTS) expect(ringFor(count, 900)).toEqual(ringFor(count, 900));
  });

  it("is as tall on the left as on the right", () => {
    for (const count of COUNTS) {
      const { seats, width } = ringFor(count, 1000);
      const mean = seats.reduce((sum, seat) => sum + seat.x, 0) / count;
      expect(Math.abs(mean - width / 2)).toBeLessThan(2);
    }
  });
});

describe("the seating", () => {
  const ids = (count: number): string[] => Array.from({ length: count }, (_, at) => `node-${at}`);

  it("keeps every place when a node goes, and gives it to the next that comes", () => {
    for (const count of COUNTS.slice(1)) {
      const before = seated([], ids(count));
      const gone = ids(count).filter((_, at) => at !== 1);
      const after = seated(before, gone);
      if (after.length !== before.length) continue; // Two of three: the ring shrinks.
      before.forEach((id, seat) => expect(after[seat]).toBe(id === "node-1" ? null : id));
      const again = seated(after, [...gone, "node-new"]);
      expect(again[1]).toBe("node-new");
      again.forEach((id, seat) => seat !== 1 && expect(id).toBe(before[seat]));
    }
  });

  it("seats everybody once, and keeps their order round the ring, through random changes", () => {
    const seed = 20_251;
    console.info(`seed ${seed}`);
    let state = seed;
    const random = (): number => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647;
    let present = ids(12);
    let seating: Seating = seated([], present);
    for (let step = 0; step < 400; step += 1) {
      const before = seating;
      if (random() < 0.5 && present.length > 2) {
        const leaving = Math.floor(random() * present.length);
        present = present.filter((_, at) => at !== leaving);
      } else if (present.length < 50) present = [...present, `late-${step}`];
      seating = seated(seating, present);
      const sitting = seating.filter((id) => id !== null);
      expect([...sitting].sort()).toEqual([...present].sort());
      const stayed = before.filter((id) => id !== null && present.includes(id));
      expect(sitting.filter((id) => stayed.includes(id))).toEqual(stayed);
    }
  });

  it("does not depend on what was there before when nobody stays", () => {
    expect(seated(["a", "b"], ["x", "y", "z"])).toEqual(["x", "y", "z"]);
  });
});

describe("lines and labels", () => {
  function drawn(count: number, width: number) {
    const ring = ringFor(count, width);
    const boxes = boxesOf(ring);
    const middle = { x: ring.width / 2, y: ring.height / 2 };
    const curves: Curve[] = [];
    for (let at = 0; at + 1 < count; at += 2) {
      curves.push(linkCurve(boxes[at]!, boxes[(at + 3) % count]!, middle, 0.4));
      curves.push(linkCurve(boxes[at]!, boxes[(at + 1) % count]!, middle, 0.4));
    }
    return { ring, boxes, curves };
  }

  it("begin and end outside the boxes of their nodes", () => {
    const inside = (point: { x: number; y: number }, box: Box): boolean =>
      Math.abs(point.x - box.x) < box.width / 2 && Math.abs(point.y - box.y) < box.height / 2;
    for (const count of COUNTS) {
      const { boxes } = drawn(count, 1000);
      for (let at = 0; at < count; at += 1) {
        const [from, to] = [boxes[at]!, boxes[(at + 3) % count]!];
        if (from === to) continue;
        const curve = linkCurve(from, to, { x: 500, y: 270 }, 0.4);
        expect(inside(curve.from, from)).toBe(false);
        expect(inside(curve.to, to)).toBe(false);
      }
    }
  });

  it("never meet: a label is on no line, node, edge or other label", () => {
    let placedCount = 0;
    for (const width of WIDTHS) {
      for (const count of COUNTS.filter((each) => each % 3 === 0 && each <= 18)) {
        const { ring, boxes, curves } = drawn(count, width);
        const labels = curves.map((curve, at) => ({ key: `${at}`, curve, width: 92, height: 16 }));
        const places = placeLabels(labels, curves, boxes, ring);
        const placed = [...places.values()].map((place) => ({ ...place, width: 92, height: 16 }));
        placedCount += placed.length;
        placed.forEach((label, at) => {
          for (const box of boxes) expect(overlap(label, box)).toBe(false);
          for (const other of placed.slice(at + 1)) expect(overlap(label, other)).toBe(false);
          for (const curve of curves) {
            const points = samplesOf(curve);
            const crossing = points
              .slice(1)
              .some((point, index) => crosses(label, points[index]!, point, 0));
            expect(crossing).toBe(false);
          }
          expect(label.x - label.width / 2).toBeGreaterThanOrEqual(0);
          expect(label.x + label.width / 2).toBeLessThanOrEqual(ring.width);
        });
      }
    }
    expect(placedCount).toBeGreaterThan(80);
  });

  it("are found for every line of a fleet of three on a desk", () => {
    const { ring, boxes } = drawn(3, 720);
    const middle = { x: ring.width / 2, y: ring.height / 2 };
    const curves = [
      linkCurve(boxes[0]!, boxes[1]!, middle, 0.2),
      linkCurve(boxes[1]!, boxes[2]!, middle, 0.2),
      linkCurve(boxes[0]!, boxes[2]!, middle, 0.2),
    ];
    const labels = curves.map((curve, at) => ({ key: `${at}`, curve, width: 110, height: 16 }));
    expect(placeLabels(labels, curves, boxes, ring).size).toBe(3);
  });
});
