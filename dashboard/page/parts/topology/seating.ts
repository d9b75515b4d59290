/** Who sits where in the rows, so that nodes keep their places when others come and go. */

/** Node ids by seat; null is a seat that its node left. */
export type Seating = readonly (string | null)[];

/** Up to here a fleet has exactly the seats that it needs. */
const EXACT = 8;

/**
 * The seats after a change. Who stays keeps the seat; newcomers take free ones
 * in the order of `nodeIds`; the rows grow when none is free, and shrink when
 * more than half are.
 */
export function seated(before: Seating, nodeIds: readonly string[]): Seating {
  const present = new Set(nodeIds);
  const kept = before.map((nodeId) => (nodeId !== null && present.has(nodeId) ? nodeId : null));
  const known = new Set(kept);
  const newcomers = nodeIds.filter((nodeId) => !known.has(nodeId));
  const free = kept.filter((nodeId) => nodeId === null).length;
  const staying = kept.length - free;
  if (staying === 0) return nodeIds;
  const needed = staying + newcomers.length;
  if (newcomers.length <= free && needed * 2 > kept.length) {
    return kept.map((nodeId) => nodeId ?? newcomers.shift() ?? null);
  }
  const seats: (string | null)[] = [...kept.filter((nodeId) => nodeId !== null), ...newcomers];
  const size = needed <= EXACT ? needed : Math.ceil(needed / 4) * 4;
  while (seats.length < size) seats.push(null);
  return seats;
}
