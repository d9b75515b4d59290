/** Events as they are listed: what several nodes tell of one node is one line. Pure. */

import type { EventView } from "../../shared/messages";

/** An event, and who told it where several did; the key and the time are the first one's. */
export interface EventLine extends EventView {
  tellerIds?: readonly string[];
}

/** Milliseconds within which nodes learn of the same change: gossip takes seconds, clocks differ. */
const WINDOW_MS = 15_000;

/** Each of these is one change of one node, which every other node tells. */
const MEMBERSHIP = new Set(["PEER_JOINED", "PEER_SUSPECT", "PEER_DEAD", "PEER_LEFT"]);

/**
 * The lines of `events`, which are in the order of their times. A node's change that
 * several nodes tell within the window is one line. So is a node's joining for as
 * long as it is not told lost: who comes later tells of all that are there.
 */
export function eventLines(events: readonly EventView[]): readonly EventLine[] {
  const lines: EventLine[] = [];
  /** By subject, the places of its lines, oldest first. */
  const places = new Map<string, number[]>();
  for (const event of events) {
    if (!MEMBERSHIP.has(event.kind) || event.subjectNodeId === "") {
      lines.push(event);
      continue;
    }
    const own = places.get(event.subjectNodeId) ?? [];
    places.set(event.subjectNodeId, own);
    const place = own.find((each) => isSame(lines[each]!, event)) ?? stillJoined(lines, own, event);
    if (place === undefined) own.push(lines.push(event) - 1);
    else lines[place] = toldBy(lines[place]!, event.nodeId);
  }
  return lines;
}

function isSame(line: EventLine, event: EventView): boolean {
  return (
    line.kind === event.kind &&
    event.at - line.at <= WINDOW_MS &&
    !tellersOf(line).includes(event.nodeId)
  );
}

function stillJoined(
  lines: readonly EventLine[],
  own: readonly number[],
  event: EventView,
): number | undefined {
  const latest = own.at(-1);
  if (latest === undefined || event.kind !== "PEER_JOINED") return undefined;
  return lines[latest]!.kind === "PEER_JOINED" ? latest : undefined;
}

function toldBy(line: EventLine, nodeId: string): EventLine {
  return { ...line, tellerIds: [...new Set([...tellersOf(line), nodeId])] };
}

/** The nodes that told it, the first one first. */
export function tellersOf(line: EventLine): readonly string[] {
  return line.tellerIds ?? [line.nodeId];
}
