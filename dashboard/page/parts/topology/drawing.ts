/** From edges and seats to what is drawn: a curve for each edge, labels where they fit. */

import { byteRate, duration } from "../format";
import { TRANSPORT_NAME } from "../states";
import { linkCurve, type Box, type Curve } from "./curve";
import type { Edge } from "./edges";
import { placeLabels, type LabelPlace } from "./labels";
import type { Ring } from "./ring";
import type { Seating } from "./seating";

export interface DrawnEdge {
  edge: Edge;
  curve: Curve;
  label: string;
  /** Absent where the label fits nowhere. */
  place?: LabelPlace;
  /** Belongs to the node under the pointer or the focus. */
  chosen: boolean;
}

/** Pixels a character takes in a label of 11 pixels, generously. */
const CHARACTER = 6.1;
const LABEL_HEIGHT = 16;
/** Up to so many nodes measured ways are drawn, those of a node that died, and labelled. */
const MOST_WAYS = { drawn: 6, down: 16, labelled: 4 };
/** Up to so many nodes the links that work are labelled without being asked. */
const MOST_LABELLED = 14;

/** The boxes of who sits, by node id. */
export function boxesOf(ring: Ring, seating: Seating): ReadonlyMap<string, Box> {
  const boxes = new Map<string, Box>();
  seating.forEach((nodeId, seat) => {
    const place = ring.seats[seat];
    if (nodeId === null || place === undefined) return;
    boxes.set(nodeId, { ...place, width: ring.size.width, height: ring.size.height });
  });
  return boxes;
}

/** `chosen` is the node asked about; its own edges are drawn and labelled first. */
export function drawEdges(
  edges: readonly Edge[],
  boxes: ReadonlyMap<string, Box>,
  ring: Ring,
  chosen: string,
): DrawnEdge[] {
  const middle = { x: ring.width / 2, y: ring.height / 2 };
  const bow = boxes.size <= 3 ? 0.1 : boxes.size <= 16 ? 0.3 : 0.5;
  const drawn = edges.flatMap((edge): DrawnEdge[] => {
    const from = boxes.get(edge.one);
    const to = boxes.get(edge.other);
    const own = chosen !== "" && (edge.one === chosen || edge.other === chosen);
    if (from === undefined || to === undefined) return [];
    const mostWays = edge.down ? MOST_WAYS.down : MOST_WAYS.drawn;
    if (edge.kind === "way" && boxes.size > mostWays && !own) return [];
    return [{ edge, curve: linkCurve(from, to, middle, bow), label: labelOf(edge), chosen: own }];
  });
  const wanted = drawn
    .filter((each) => each.label !== "" && isLabelled(each, boxes.size, chosen))
    .sort((one, other) => weight(other) - weight(one));
  const places = placeLabels(
    wanted.map(({ edge, curve, label }) => ({
      key: edge.key,
      curve,
      width: label.length * CHARACTER + 10,
      height: LABEL_HEIGHT,
    })),
    // What is dimmed while a node is chosen may pass below its labels.
    drawn.filter((each) => chosen === "" || each.chosen).map((each) => each.curve),
    [...boxes.values()],
    ring,
  );
  return drawn.map((each) => {
    const place = places.get(each.edge.key);
    return place === undefined ? each : { ...each, place };
  });
}

function isLabelled({ edge, chosen: own }: DrawnEdge, nodeCount: number, chosen: string): boolean {
  if (chosen !== "") return own;
  if (edge.down) return false;
  return edge.kind === "way" ? nodeCount <= MOST_WAYS.labelled : nodeCount <= MOST_LABELLED;
}

function weight({ edge, chosen }: DrawnEdge): number {
  return (chosen ? 8 : 0) + (edge.flows.length > 0 ? 4 : 0) + (edge.kind === "way" ? 0 : 2);
}

/** gRPC · 0.31 ms · 118 MiB/s */
export function labelOf(edge: Edge): string {
  const parts: string[] = [];
  if (edge.kind === "ids") parts.push("drafts");
  else if (edge.kind !== "way") parts.push(TRANSPORT_NAME[edge.kind]);
  if (edge.roundTripSeconds > 0) parts.push(duration(edge.roundTripSeconds));
  if (edge.bytesPerSecond > 0) parts.push(byteRate(edge.bytesPerSecond));
  if (edge.breakerOpen) parts.push("shut out");
  return parts.join(" · ");
}
