import { describe, expect, it } from "vitest";

import { nodeView } from "../../../tests/views";
import { pointAt, type Curve } from "./curve";
import { drawEdges, machinesOf } from "./drawing";
import { edgesOf, roundTripsFrom } from "./edges";
import { crosses, overlap, placeLabels, samplesOf } from "./labels";
import { machineAt, obstaclesOf, routed, type Machine } from "./routing";
import { rowsFor } from "./rows";
import { seated, type Seating } from "./seating";

const WIDTHS = [326, 520, 820, 1200];
const COUNTS = Array.from({ length: 49 }, (_, index) => index + 2);
const SHAPES = ["mac-mini", "mac-studio", "macbook", "linux", "computer"];

/** A machine of another shape at each of the seats. */
function machinesIn(rows: ReturnType<typeof rowsFor>): Machine[] {
  return rows.seats.map((seat, at) => machineAt(seat, rows, SHAPES[at % SHAPES.length]!));
}

describe("the rows", () => {
  it.each(WIDTHS)("of 2 to 50 nodes in %d pixels overlap nowhere and stay within", (width) => {
    for (const count of COUNTS) {
      const rows = rowsFor(count, width);
      const machines = machinesIn(rows);
      expect(machines).toHaveLength(count);
      machines.forEach((box, index) => {
        // Names may touch; what stands beside each other takes its own place.
        const inner = { ...box, width: box.width - 0.01 };
        expect(machines.slice(index + 1).some((other) => overlap(inner, other))).toBe(false);
        expect(box.x - box.width / 2).toBeGreaterThanOrEqual(-0.01);
        expect(box.x + box.width / 2).toBeLessThanOrEqual(width + 0.01);
        expect(box.y - box.height / 2).toBeGreaterThanOrEqual(rows.size.headroom);
        expect(box.y + box.height / 2).toBeLessThanOrEqual(rows.height);
        expect(box.width).toBeGreaterThanOrEqual(rows.size.width);
      });
    }
  });

  it("of a desk take 150 pixels, of fifty nodes 220", () => {
    for (const count of [1, 2, 3, 5, 8]) expect(rowsFor(count, 1100).height).toBeLessThan(150);
    expect(rowsFor(50, 1100).height).toBeLessThan(220);
  });

  it("are as full on the left as on the right", () => {
    for (const count of COUNTS) {
      const { seats, width } = rowsFor(count, 1000);
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
      if (after.length !== before.length) continue; // Two of three: the rows shrink.
      before.forEach((id, seat) => expect(after[seat]).toBe(id === "node-1" ? null : id));
      const again = seated(after, [...gone, "node-new"]);
      expect(again[1]).toBe("node-new");
      again.forEach((id, seat) => seat !== 1 && expect(id).toBe(before[seat]));
    }
  });

  it("seats everybody once, and keeps their order in the rows, through random changes", () => {
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
    const rows = rowsFor(count, width);
    const machines = machinesIn(rows);
    const links = [];
    for (let at = 0; at + 1 < count; at += 2) {
      for (const step of [1, 3]) {
        const [from, to] = [machines[at]!, machines[(at + step) % count]!];
        if (from !== to) links.push({ key: `${at}|${step}`, from, to });
      }
    }
    return { rows, machines, links, curves: routed(links, rows) };
  }

  it("reach the devices at both ends, and enter none of them there", () => {
    const off = ({ x, y }: { x: number; y: number }, { left, right, top, bottom }: Machine) =>
      Math.hypot(Math.max(left - x, 0, x - right), Math.max(top - y, 0, y - bottom));
    for (const width of WIDTHS) {
      for (const count of COUNTS) {
        const { links, curves } = drawn(count, width);
        for (const { key, from, to } of links) {
          const curve = curves.get(key)!;
          expect(off(curve.from, from)).toBeCloseTo(2);
          expect(off(curve.to, to)).toBeCloseTo(2);
          // Nor shortly after it left.
          expect(off(pointAt(curve, 0.03), from)).toBeGreaterThan(0);
          expect(off(pointAt(curve, 0.97), to)).toBeGreaterThan(0);
        }
      }
    }
  });

  it("pass over the machines between, not through them", () => {
    const rows = rowsFor(5, 1100);
    const machines = machinesIn(rows);
    const links = [2, 3, 4].map((at) => ({
      key: `${at}`,
      from: machines[0]!,
      to: machines[at]!,
    }));
    const curves = routed(links, rows);
    for (const { key, to } of links) {
      const points = samplesOf(curves.get(key)!);
      for (const machine of machines.filter((each) => each !== machines[0] && each !== to)) {
        const device = { ...machine, width: machine.right - machine.left };
        expect(points.some((point, at) => at > 0 && crosses(device, points[at - 1]!, point))).toBe(
          false,
        );
      }
      for (const point of points) expect(point.y).toBeGreaterThan(0);
    }
  });

  it("never meet: a label is on no line, node, edge or other label", () => {
    let placedCount = 0;
    for (const width of WIDTHS) {
      for (const count of COUNTS.filter((each) => each % 3 === 0 && each <= 18)) {
        const { rows, machines, curves } = drawn(count, width);
        const lines = [...curves.values()];
        const labels = lines.map((curve, at) => ({ key: `${at}`, curve, width: 60, height: 16 }));
        const boxes = machines.flatMap((machine) => obstaclesOf(machine, rows));
        const places = placeLabels(labels, lines, boxes, rows);
        const placed = [...places.values()].map((place) => ({ ...place, width: 60, height: 16 }));
        placedCount += placed.length;
        placed.forEach((label, at) => {
          for (const box of boxes) expect(overlap(label, box)).toBe(false);
          for (const other of placed.slice(at + 1)) expect(overlap(label, other)).toBe(false);
          for (const curve of lines) expect(crossed(label, curve)).toBe(false);
          expect(label.x - label.width / 2).toBeGreaterThanOrEqual(0);
          expect(label.x + label.width / 2).toBeLessThanOrEqual(rows.width);
        });
      }
    }
    expect(placedCount).toBeGreaterThan(40);
  });

  function crossed(label: { x: number; y: number; width: number; height: number }, curve: Curve) {
    const points = samplesOf(curve);
    return points.slice(1).some((point, index) => crosses(label, points[index]!, point, 0));
  }

  /** Nodes that have all measured the ways to the others: as many milliseconds as they are apart. */
  function fleetOf(count: number) {
    return Array.from({ length: count }, (_, at) => ({
      ...nodeView(`node-${String(at).padStart(2, "0")}`),
      ways: Array.from({ length: at }, (_, to) => ({
        nodeId: `node-${String(to).padStart(2, "0")}`,
        roundTripSeconds: (at - to) / 1000,
        breakerOpen: false,
      })) as ReturnType<typeof nodeView>["ways"],
    }));
  }

  it("are found for every way of a fleet of three on a desk", () => {
    const nodes = fleetOf(3);
    const rows = rowsFor(3, 1100);
    const machines = machinesOf(
      rows,
      nodes.map(({ nodeId }) => nodeId),
      new Map(),
    );
    const edges = drawEdges(edgesOf(nodes, []), machines, rows, "");
    expect(edges.map(({ label, place }) => [label, place !== undefined])).toEqual([
      ["1.00 ms", true],
      ["2.00 ms", true],
      ["1.00 ms", true],
    ]);
  });

  it("are none to a node that left, and broken ones to a node that died", () => {
    const nodes = fleetOf(3);
    nodes[0]!.liveness = "left";
    nodes[1]!.liveness = "dead";
    expect(edgesOf(nodes, []).map(({ key, down }) => [key, down])).toEqual([
      ["node-01|node-02", true],
    ]);
  });

  it("leave it to the machines to say their round trips where they are more, at any number", () => {
    for (const count of COUNTS) {
      const nodes = fleetOf(count);
      const edges = edgesOf(nodes, []);
      const told = roundTripsFrom("node-01", edges);
      expect(told.size).toBe(count - 1);
      expect(told.get("node-00")).toBeCloseTo(0.001);
      if (count > 2) expect(told.get(nodes.at(-1)!.nodeId)).toBeCloseTo((count - 2) / 1000);
      const rows = rowsFor(count, 1100);
      const machines = machinesOf(
        rows,
        nodes.map(({ nodeId }) => nodeId),
        new Map(),
      );
      const lines = drawEdges(edges, machines, rows, "node-01");
      expect(lines).toHaveLength(count <= 4 ? edges.length : 0);
    }
  });
});
