/** From messages of watches to their events; null for a kind that is newer than this client. */

import type {
  NodeStatus as NodeStatusMessage,
  WatchFleetResponse,
  WatchNodeResponse,
} from "../generated/kakeya/v1/capability_pb.js";
import type { WatchSessionsResponse } from "../generated/kakeya/v1/runtime_pb.js";
import type { SessionActivity } from "../generated/values.js";
import * as wire from "../generated/wire.js";
import type { FleetEvent, NodeActivity, NodeStatus, SessionsEvent } from "../values/watch.js";

/** One node, as the answering node knows it. */
export function nodeStatus(message: NodeStatusMessage): NodeStatus {
  const nodeId = message.card?.nodeId ?? "";
  // A card that was received carries its owner's protocol; a bare id does not.
  const known = message.card && message.card.protocolMax > 0 ? wire.card(message.card) : null;
  return {
    nodeId,
    name: known?.name ?? nodeId.slice(0, 12),
    address: known?.addresses[0] ?? "",
    liveness: wire.liveness(message.liveness),
    ageSeconds: message.ageSeconds,
    roundTripSeconds: message.roundTripSeconds || null,
    isSelf: message.isSelf,
    card: known,
    models: known?.models ?? [],
    archive: known?.archive ?? null,
    withheldRoles: message.withheldRoles.map(wire.role),
  };
}

/** The events of one watch of the fleet: parts of its snapshot are joined to one. */
export function fleetEvents(): (message: WatchFleetResponse) => FleetEvent | null {
  let nodes: NodeStatus[] = [];
  return ({ kind }) => {
    switch (kind.case) {
      case "snapshot": {
        nodes = nodes.concat(kind.value.nodes.map(nodeStatus));
        if (kind.value.more) {
          return null;
        }
        const whole = nodes;
        nodes = [];
        return { type: "snapshot", fleetName: kind.value.fleetName, nodes: whole };
      }
      case "changed":
        return { type: "changed", node: nodeStatus(kind.value) };
      case "removedNodeId":
        return { type: "removed", nodeId: kind.value };
      case undefined:
        return null;
    }
  };
}

/** One event of a watch of a node. */
export function nodeActivity({ kind }: WatchNodeResponse): NodeActivity | null {
  switch (kind.case) {
    case "history":
      return wire.nodeHistory(kind.value);
    case "sample":
      return { type: "sample", sample: wire.nodeSample(kind.value) };
    case "event":
      return { type: "event", event: wire.nodeEvent(kind.value) };
    case "transfer":
      return { type: "transfer", transfer: wire.transfer(kind.value) };
    case "node":
      return { type: "node", node: wire.node(kind.value) };
    case undefined:
      return null;
  }
}

/** The events of one watch of sessions: parts of its snapshot are joined to one. */
export function sessionsEvents(): (message: WatchSessionsResponse) => SessionsEvent | null {
  let sessions: readonly SessionActivity[] = [];
  return ({ kind }) => {
    switch (kind.case) {
      case "snapshot": {
        const part = wire.sessionsSnapshot(kind.value);
        sessions = sessions.concat(part.sessions);
        if (kind.value.more) {
          return null;
        }
        const whole = sessions;
        sessions = [];
        return { ...part, sessions: whole };
      }
      case "changed":
        return { type: "changed", activity: wire.sessionActivity(kind.value) };
      case "ended":
        return wire.endedSession(kind.value);
      case undefined:
        return null;
    }
  };
}

/** Whether a further part of the snapshot follows at once. */
export function hasMore({ kind }: WatchFleetResponse | WatchSessionsResponse): boolean {
  return kind.case === "snapshot" && kind.value.more;
}
