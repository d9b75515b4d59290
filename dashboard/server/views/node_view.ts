/** What the SDK tells of nodes, as the page takes it. */

import type {
  Card,
  ModelOffer,
  Node,
  NodeEvent,
  NodeSample,
  NodeStatus,
  Transfer,
} from "@kakeya/runtime";

import type {
  EventView,
  Liveness,
  LinkView,
  ModelView,
  NodeView,
  PullView,
  Sample,
  TransferView,
  Transport,
} from "../../shared/messages";

/** What the process knows of reaching a node itself. */
export interface Reach {
  reachable: boolean;
  reason: string;
  /** By the process's clock, in milliseconds since 1970; 0 before the first word. */
  heardAt: number;
}

/**
 * A node as the fleet speaks of it (`status`) and as it speaks of itself
 * (`node`, null before it did). `offset` is the process's clock less the node's,
 * in milliseconds.
 */
export function nodeView(
  status: NodeStatus,
  node: Node | null,
  reach: Reach,
  offset: number,
): Omit<NodeView, "samples"> {
  const card = node?.card ?? status.card;
  return {
    nodeId: status.nodeId,
    name: card?.name ?? status.name,
    address: status.address,
    isSelf: status.isSelf,
    liveness: livenessOf(status),
    reachable: reach.reachable,
    unreachableReason: reach.reason,
    heardAt: reach.heardAt,
    roundTripSeconds: status.roundTripSeconds ?? 0,
    ...ofCard(card, status.nodeId),
    ...ofNode(node, card, offset),
  };
}

function livenessOf(status: NodeStatus): Liveness {
  // A liveness that this version has no word for is at least not certain.
  return status.liveness === "unknown" ? "suspect" : status.liveness;
}

type CardPart = Pick<
  NodeView,
  | "platform"
  | "accelerator"
  | "hostId"
  | "shape"
  | "softwareVersion"
  | "protocolMin"
  | "protocolMax"
  | "memoryTotalBytes"
  | "ringAddress"
  | "models"
>;

function ofCard(card: Card | null, nodeId: string): CardPart {
  return {
    platform: card?.platform ?? "",
    accelerator: card?.acceleratorName || (card?.acceleratorKind ?? ""),
    hostId: card?.hostId || nodeId,
    shape: shapeOf(card),
    softwareVersion: card?.softwareVersion ?? "",
    protocolMin: card?.protocolMin ?? 0,
    protocolMax: card?.protocolMax ?? 0,
    memoryTotalBytes: card?.memoryTotalBytes ?? 0,
    ringAddress: card?.ringAddress ?? "",
    models: (card?.models ?? []).flatMap(modelViews),
  };
}

type NodePart = Omit<
  NodeView,
  | keyof CardPart
  | "nodeId"
  | "name"
  | "address"
  | "isSelf"
  | "liveness"
  | "reachable"
  | "unreachableReason"
  | "heardAt"
  | "roundTripSeconds"
  | "samples"
>;

function ofNode(node: Node | null, card: Card | null, offset: number): NodePart {
  const load = node?.load;
  return {
    startedAt: node === null || node.startedAtUnix === 0 ? 0 : node.startedAtUnix * 1000 + offset,
    memoryFreeBytes: load?.memoryFreeBytes ?? card?.memoryFreeBytes ?? 0,
    kvBytes: load?.kvBytes ?? 0,
    kvBudgetBytes: load?.kvBudgetBytes ?? 0,
    archiveBytes: load?.archiveBytes ?? 0,
    archiveBudgetBytes: load?.archiveBudgetBytes ?? card?.archive?.capacityBytes ?? 0,
    sessionCount: load?.sessionCount ?? 0,
    generatingCount: load?.generatingCount ?? 0,
    draining: node?.draining ?? false,
    httpAddress: node?.httpAddress || (card?.httpAddress ?? ""),
    ways: (node?.links ?? []).map(({ archiveWaitSeconds: _, address: __, ...way }) => way),
    links: linkViews(node),
    seedFaults: (node?.seedFaults ?? []).map(({ address, reason, message, mend }) => ({
      address,
      reason,
      message,
      mend,
    })),
    acceptances: (node?.acceptances ?? []).map((pair) => ({
      verifierModelId: pair.verifierModelId,
      proposerModelId: pair.proposerModelId,
      rate: pair.acceptanceRate,
      rateLow: pair.acceptanceRateLow,
      rateHigh: pair.acceptanceRateHigh,
      draftedCount: pair.draftedCount,
    })),
  };
}

function linkViews(node: Node | null): LinkView[] {
  return (node?.tensorLinks ?? []).map(({ generation: _, changedSecondsAgo, ...link }) => ({
    ...link,
    transport: transportOf(link.transport) || "grpc",
    changedAt: Date.now() - changedSecondsAgo * 1000,
  }));
}

/** Empty for none, and for one that this version has no word for. */
export function transportOf(transport: string | null): Transport | "" {
  return transport === "local" || transport === "grpc" || transport === "ring" ? transport : "";
}

/** None for a role that is no model's. */
function modelViews(offer: ModelOffer): ModelView[] {
  if (offer.role !== "verifier" && offer.role !== "proposer") return [];
  return [
    {
      modelId: offer.modelId,
      role: offer.role,
      kind: offer.kind,
      weightsDigest: offer.weightsDigest,
      tokenizerDigest: offer.tokenizerDigest,
      quantization: offer.quantization,
      dtype: offer.dtype,
      contextLength: offer.contextLength,
      vocabularySize: offer.vocabularySize,
      backend: offer.backend,
      architecture: offer.architecture,
      stepSeconds: offer.stepCosts[0]?.seconds ?? 0,
      exact: offer.exact,
      rankCount: Math.max(1, offer.rankCount),
    },
  ];
}

/** The shape that is drawn. Cards tell no model of machine: the name or the chip has to. */
function shapeOf(card: Card | null): string {
  if (card === null) return "computer";
  const name = card.name.toLowerCase();
  if (/macbook|laptop|mbp/.test(name)) return "macbook";
  if (/studio/.test(name)) return "mac-studio";
  if (card.platform.startsWith("darwin")) {
    return /ultra/i.test(card.acceleratorName) ? "mac-studio" : "mac-mini";
  }
  return card.platform.startsWith("linux") ? "linux" : "computer";
}

/**
 * Rates to a tenth, shares to a thousandth and whole bytes: fifty nodes' quarters of an hour
 * travel to every page.
 */
export function sampleView(sample: NodeSample, offset: number): Sample {
  const { atUnix, ...measured } = sample;
  return {
    ...measured,
    at: Math.round(atUnix * 1000 + offset),
    tokensPerSecond: tenth(measured.tokensPerSecond),
    prefillTokensPerSecond: tenth(measured.prefillTokensPerSecond),
    draftsPerSecond: tenth(measured.draftsPerSecond),
    linkBytesPerSecond: Math.round(measured.linkBytesPerSecond),
    cpuShare: thousandth(measured.cpuShare),
    processCpuShare: thousandth(measured.processCpuShare),
    acceleratorShare: thousandth(measured.acceleratorShare),
  };
}

function tenth(rate: number): number {
  return Math.round(rate * 10) / 10;
}

function thousandth(share: number | null): number | null {
  return share === null ? null : Math.round(share * 1000) / 1000;
}

/** `boot` tells the node's starts apart: event numbers begin anew with each. */
export function eventView(
  { number, atUnix, ...event }: NodeEvent,
  nodeId: string,
  boot: string,
  offset: number,
): EventView {
  return {
    ...event,
    key: `${nodeId}/${boot}/${number}`,
    at: atUnix * 1000 + offset,
    severity: event.severity === "unknown" ? "info" : event.severity,
    nodeId,
  };
}

export function transferView(
  transfer: Transfer,
  nodeId: string,
  offset: number,
  pull: PullView | null,
): TransferView {
  const { startedAtUnix, ...told } = transfer;
  return {
    ...told,
    nodeId,
    kind: transfer.kind === "load" ? "load" : "download",
    state: transfer.state === "unknown" ? "running" : transfer.state,
    startedAt: startedAtUnix * 1000 + offset,
    pull,
  };
}
