/** From edges and seats to what is drawn: a curve for each edge, labels where they fit. */

import { byteRate, duration } from "../format";
import { TRANSPORT_NAME } from "../states";
import type { Curve } from "./curve";
import type { Edge } from "./edges";
import { placeLabels, type LabelPlace } from "./labels";
import { machineAt, obstaclesOf, routed, type Machine } from "./routing";
import type { Rows } from "./rows";
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
/** Up to so many nodes measured ways are drawn; each machine says its round trip at any number. */
const MOST_WITH_WAYS = 4;
/** Up to so many nodes the links that work are labelled without being asked. */
const MOST_LABELLED = 14;

/** The machines of who sits, by node id; `shapes` has what is drawn of each. */
export function machinesOf(
  rows: Rows,
  seating: Seating,
  shapes: ReadonlyMap<string, string>,
): ReadonlyMap<string, Machine> {
  const machines = new Map<string, Machine>();
  seating.forEach((nodeId, at) => {
    const seat = rows.seats[at];
    if (nodeId === null || seat === undefined) return;
    machines.set(nodeId, machineAt(seat, rows, shapes.get(nodeId) ?? ""));
  });
  return machines;
}

/** `chosen` is the node asked about; its own edges are drawn and labelled first. */
export function drawEdges(
  edges: readonly Edge[],
  machines: ReadonlyMap<string, Machine>,
  rows: Rows,
  chosen: string,
): DrawnEdge[] {
  const links = edges.flatMap((edge) => {
    const from = machines.get(edge.one);
    const to = machines.get(edge.other);
    if (from === undefined || to === undefined) return [];
    if (edge.kind === "way" && machines.size > MOST_WITH_WAYS) return [];
    return [{ key: edge.key, edge, from, to }];
  });
  const curves = routed(links, rows);
  const brief = rows.size.name !== "large";
  const drawn = links.map(({ edge }): DrawnEdge => {
    const own = chosen !== "" && (edge.one === chosen || edge.other === chosen);
    return { edge, curve: curves.get(edge.key)!, label: labelOf(edge, brief), chosen: own };
  });
  const wanted = drawn
    .filter((each) => each.label !== "" && isLabelled(each, machines.size, chosen))
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
    [...machines.values()].flatMap((machine) => obstaclesOf(machine, rows)),
    rows,
  );
  return drawn.map((each) => {
    const place = places.get(each.edge.key);
    return place === undefined ? each : { ...each, place };
  });
}

function isLabelled({ edge, chosen: own }: DrawnEdge, nodeCount: number, chosen: string): boolean {
  if (chosen !== "") return own;
  return !edge.down && nodeCount <= MOST_LABELLED;
}

function weight({ edge, chosen }: DrawnEdge): number {
  return (chosen ? 8 : 0) + (edge.flows.length > 0 ? 4 : 0) + (edge.kind === "way" ? 0 : 2);
}

/** gRPC · 0.31 ms · 118 MiB/s; in brief without what the line itself tells. */
export function labelOf(edge: Edge, brief: boolean): string {
  const parts: string[] = [];
  if (!brief && edge.kind !== "way") {
    parts.push(edge.kind === "ids" ? "drafts" : TRANSPORT_NAME[edge.kind]);
  }
  if (edge.roundTripSeconds > 0) parts.push(duration(edge.roundTripSeconds));
  if (edge.bytesPerSecond > 0) parts.push(byteRate(edge.bytesPerSecond));
  if (edge.breakerOpen) parts.push("shut out");
  return parts.join(" · ");
}
