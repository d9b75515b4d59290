/** Whose disks have a model, and whose might. Pure. */

import type { NodeView, StoredModelView, StoredView, TransferView } from "../../../shared/messages";
import { isDown } from "../states";
import type { ModelRow } from "./model_rows";

/** What pulls brought of one model to one place. */
export interface Disk {
  /** By name; several where nodes of one machine have one cache. */
  nodeIds: readonly string[];
  /** What is there of one that is not whole. */
  bytes: number;
  isWhole: boolean;
  /** 0 for one that is not whole. */
  pulledAt: number;
  sourceNames: readonly string[];
  /** Whom to ask to remove it: of several nodes one that serves it, which refuses. */
  askedNodeId: string;
}

/** By model; `nodes` by name. */
export function disksByModel(
  nodes: readonly NodeView[],
  stored: StoredView,
): ReadonlyMap<string, readonly Disk[]> {
  const places = new Map<string, Map<string, Disk>>();
  for (const node of nodes.filter((each) => !isDown(each))) {
    for (const model of stored[node.nodeId] ?? []) {
      const ofModel = places.get(model.modelId) ?? new Map<string, Disk>();
      places.set(model.modelId, ofModel);
      const place = placeOf(node, model);
      ofModel.set(place, joined(ofModel.get(place), node.nodeId, model));
    }
  }
  return new Map([...places].map(([modelId, ofModel]) => [modelId, [...ofModel.values()]]));
}

/** One machine's nodes that have the same files are taken for having them once. */
function placeOf(node: NodeView, model: StoredModelView): string {
  return JSON.stringify([node.hostId, model.isWhole, model.isWhole ? model.filesDigest : ""]);
}

function joined(known: Disk | undefined, nodeId: string, model: StoredModelView): Disk {
  return {
    nodeIds: [...(known?.nodeIds ?? []), nodeId],
    bytes: Math.max(known?.bytes ?? 0, model.byteCount),
    isWhole: model.isWhole,
    pulledAt: known?.pulledAt ?? model.pulledAt,
    sourceNames: model.sourceNames,
    askedNodeId: known === undefined || model.isServed ? nodeId : known.askedNodeId,
  };
}

/** What became of the latest download of a model by one of the nodes; undefined without any. */
export function latestDownload(
  transfers: readonly TransferView[],
  modelId: string,
  nodeIds: readonly string[],
): TransferView["state"] | undefined {
  const own = transfers.filter(
    (each) => each.kind === "download" && each.modelId === modelId && nodeIds.includes(each.nodeId),
  );
  return own.sort((one, other) => other.startedAt - one.startedAt)[0]?.state;
}

/** Nodes that could copy a model: living ones that lack it, where another one has it; as they come. */
export function copyTargets(
  { modelId, offer, holders, disks }: ModelRow,
  nodes: readonly NodeView[],
  transfers: readonly TransferView[],
): NodeView[] {
  if (offer?.kind === "ngram") return [];
  const whole = disks.filter(({ isWhole }) => isWhole).flatMap(({ nodeIds }) => nodeIds);
  const serving = holders.filter((holder) => !holder.isDown).map(({ nodeId }) => nodeId);
  const having = new Set([...whole, ...serving]);
  if (having.size === 0) return [];
  return nodes.filter(
    (node) =>
      !isDown(node) &&
      !having.has(node.nodeId) &&
      latestDownload(transfers, modelId, [node.nodeId]) !== "running",
  );
}
