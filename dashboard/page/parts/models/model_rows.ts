/** The models of a fleet, each with who serves it and whose disk has it. Pure. */

import type { ModelView, NodeView, StoredView, TransferView } from "../../../shared/messages";
import { isDown } from "../states";
import { disksByModel, type Disk } from "./disks";

/** A node that serves a model in one role. */
export interface Holder {
  nodeId: string;
  isDown: boolean;
  offer: ModelView;
  /** When its load began, by the process's clock; the node's start where no load is known. */
  since: number;
}

export interface ModelRow {
  modelId: string;
  /** As the first of its holders offers it; undefined for one that nobody serves. */
  offer: ModelView | undefined;
  /** Bytes of its weights as they were loaded; 0 where no load of it is known. */
  bytes: number;
  /** By node's name, verifiers first. */
  holders: readonly Holder[];
  /** What pulls brought of it, and what they bring; by node's name. */
  disks: readonly Disk[];
  /** Nodes that neither serve it nor pulled it, and brought all of it here before: as from the hub. */
  earlierNodeIds: readonly string[];
}

/**
 * Those that verify first, then those that draft, then those of which files are known; by id.
 * What nodes have `stored` tells of copies between nodes better than the transfers that brought them.
 */
export function modelRows(
  nodes: readonly NodeView[],
  transfers: readonly TransferView[],
  stored: StoredView = {},
): ModelRow[] {
  const done = transfers.filter(
    ({ state, pull }) => state === "done" && (pull === null || pull.sources.length === 0),
  );
  const disks = disksByModel(nodes, stored);
  const ids = new Set<string>([...done.map(({ modelId }) => modelId), ...disks.keys()]);
  for (const node of nodes) for (const { modelId } of node.models) ids.add(modelId);
  const living = new Set(nodes.filter((node) => !isDown(node)).map(({ nodeId }) => nodeId));
  return [...ids]
    .map((modelId) => {
      const own = done.filter((each) => each.modelId === modelId);
      const holders = nodes.flatMap((node) => holdersAt(node, modelId, own)).sort(byRole);
      const onDisks = disks.get(modelId) ?? [];
      const having = new Set([
        ...holders.map(({ nodeId }) => nodeId),
        ...onDisks.flatMap(({ nodeIds }) => nodeIds),
      ]);
      const loads = own.filter(({ kind }) => kind === "load");
      const earlier = own.filter(({ nodeId }) => living.has(nodeId) && !having.has(nodeId));
      return {
        modelId,
        offer: holders[0]?.offer,
        bytes: Math.max(0, ...loads.map(({ totalBytes }) => totalBytes)),
        holders,
        disks: onDisks,
        earlierNodeIds: [...new Set(earlier.map(({ nodeId }) => nodeId))],
      };
    })
    .sort((one, other) => rank(one) - rank(other) || one.modelId.localeCompare(other.modelId));
}

function holdersAt(node: NodeView, modelId: string, done: readonly TransferView[]): Holder[] {
  const loads = done.filter(({ kind, nodeId }) => kind === "load" && nodeId === node.nodeId);
  const since = Math.max(0, ...loads.map(({ startedAt }) => startedAt)) || node.startedAt;
  return node.models
    .filter((offer) => offer.modelId === modelId)
    .map((offer) => ({ nodeId: node.nodeId, isDown: isDown(node), offer, since }));
}

function rank({ offer }: ModelRow): number {
  if (offer === undefined) return 2;
  return offer.role === "verifier" ? 0 : 1;
}

const byRole = (one: Holder, other: Holder): number =>
  Number(other.offer.role === "verifier") - Number(one.offer.role === "verifier");
