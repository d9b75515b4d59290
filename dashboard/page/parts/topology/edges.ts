/** What is drawn between nodes: measured ways, open links, and who drafts or keeps for whom. */

import type { LinkView, NodeView, SessionView, Transport } from "../../../shared/messages";
import { isDown, strongest } from "../states";

/** Ids or tensors that go from one node to another for a session. */
export interface Flow {
  kind: "draft" | "archive";
  from: string;
  to: string;
}

/** Between two nodes; `one` is the lesser id. */
export interface Edge {
  key: string;
  one: string;
  other: string;
  /** way: measured, nothing open; ids: a pair that exchanges drafts alone; else what carries tensors. */
  kind: "way" | "ids" | Transport;
  flows: readonly Flow[];
  /** Seconds; 0 while unmeasured. */
  roundTripSeconds: number;
  bytesPerSecond: number;
  /** Either end does not live. */
  down: boolean;
  /** One end shuts out the other's proposers. */
  breakerOpen: boolean;
  /** Why a link is not on the ring, or was changed; may be empty. */
  reason: string;
}

interface Draft {
  one: string;
  other: string;
  ways: number[];
  links: LinkView[];
  flows: Map<string, Flow>;
  breakerOpen: boolean;
}

/** All edges, by key. Nodes that are not known are left out, and those that left: they closed theirs. */
export function edgesOf(nodes: readonly NodeView[], sessions: readonly SessionView[]): Edge[] {
  const present = nodes.filter((node) => node.liveness !== "left");
  const known = new Map(present.map((node) => [node.nodeId, node]));
  const drafts = new Map<string, Draft>();
  const between = (from: string, to: string): Draft | undefined => {
    if (from === to || !known.has(from) || !known.has(to)) return undefined;
    const [one, other] = from < to ? [from, to] : [to, from];
    const key = `${one}|${other}`;
    let draft = drafts.get(key);
    if (draft === undefined) {
      draft = { one, other, ways: [], links: [], flows: new Map(), breakerOpen: false };
      drafts.set(key, draft);
    }
    return draft;
  };
  for (const node of nodes) {
    for (const way of node.ways) {
      const draft = between(node.nodeId, way.nodeId);
      if (draft === undefined) continue;
      if (way.roundTripSeconds > 0) draft.ways.push(way.roundTripSeconds);
      draft.breakerOpen ||= way.breakerOpen;
    }
    for (const link of node.links) between(node.nodeId, link.peerNodeId)?.links.push(link);
  }
  for (const session of sessions) addFlows(session, between);
  return [...drafts]
    .map(([key, draft]) => edgeOf(key, draft, known))
    .sort((one, other) => one.key.localeCompare(other.key));
}

function addFlows(
  session: SessionView,
  between: (from: string, to: string) => Draft | undefined,
): void {
  const add = (flow: Flow): void => {
    between(flow.from, flow.to)?.flows.set(`${flow.kind}${flow.from}`, flow);
  };
  if (
    session.state === "generating" &&
    session.proposerNodeId !== "" &&
    session.dropReason === ""
  ) {
    add({ kind: "draft", from: session.proposerNodeId, to: session.nodeId });
  }
  for (const archive of session.archiveNodeIds) {
    add({ kind: "archive", from: session.nodeId, to: archive });
  }
}

function edgeOf(key: string, draft: Draft, known: ReadonlyMap<string, NodeView>): Edge {
  const link = strongest(draft.links);
  const ends = [known.get(draft.one)!, known.get(draft.other)!];
  const flows = [...draft.flows.values()];
  const down = ends.some(isDown);
  return {
    key,
    one: draft.one,
    other: draft.other,
    kind: link?.transport ?? (flows.length > 0 ? "ids" : "way"),
    flows: down ? [] : flows,
    roundTripSeconds: draft.ways.length > 0 ? Math.min(...draft.ways) : 0,
    // Both ends tell of the same bytes: each as it sees them.
    bytesPerSecond: Math.max(0, ...draft.links.map((each) => each.bytesPerSecond)),
    down,
    breakerOpen: draft.breakerOpen,
    reason: link?.reason ?? "",
  };
}

/** Seconds of the measured round trips between a node and each other one, by that one's id. */
export function roundTripsFrom(
  nodeId: string,
  edges: readonly Edge[],
): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const { one, other, roundTripSeconds } of edges) {
    if (roundTripSeconds === 0) continue;
    if (one === nodeId) found.set(other, roundTripSeconds);
    if (other === nodeId) found.set(one, roundTripSeconds);
  }
  return found;
}

/** What of the fleet changes which edges there are, as one string: cheap to compare each frame. */
export function edgeStructure(
  nodes: readonly NodeView[],
  sessions: readonly SessionView[],
): string {
  const parts = nodes.map(
    (node) =>
      `${node.nodeId}:${node.liveness}:${node.ways.length}:${node.links
        .map((link) => link.peerNodeId + link.transport)
        .join()}`,
  );
  for (const session of sessions) {
    const drafting = session.state === "generating" && session.dropReason === "";
    parts.push(
      `${session.nodeId}${drafting ? session.proposerNodeId : ""}${session.archiveNodeIds.join()}`,
    );
  }
  return parts.join(";");
}
