/** The fleet, from messages of `kakeya.v1` to values. */

import { create } from "@bufbuild/protobuf";

import {
  CapabilityCardSchema,
  LivenessSchema,
  type ArchiveOffer as ArchiveOfferMessage,
  type CapabilityCard,
  type FleetSnapshot as FleetSnapshotMessage,
  type GetNodeResponse,
  type NodeStatus as NodeStatusMessage,
  type TensorLinkStatus,
  type WatchFleetResponse,
} from "../generated/kakeya/v1/capability_pb.js";
import { TransportSchema } from "../generated/kakeya/v1/placement_pb.js";
import { LinkPurposeSchema } from "../generated/kakeya/v1/tensor_pb.js";
import {
  LIVENESSES,
  type ArchiveOffer,
  type Card,
  type FleetEvent,
  type FleetSnapshot,
  type Node,
  type NodeStatus,
  type TensorLink,
} from "../values/fleet.js";
import { LINK_PURPOSES, TRANSPORTS } from "../values/plan.js";
import { enumName } from "./numbers.js";
import { modelOffer } from "./plan.js";

/** What one node is and offers. */
export function card(message: CapabilityCard): Card {
  return {
    nodeId: message.nodeId,
    name: message.name,
    fleetName: message.fleetName,
    bootId: message.bootId,
    incarnation: Number(message.incarnation),
    sequence: message.sequence,
    publicKey: Buffer.from(message.publicKey).toString("hex"),
    addresses: [...message.addresses],
    platform: message.platform,
    acceleratorKind: message.accelerator?.kind ?? "",
    acceleratorName: message.accelerator?.name ?? "",
    memoryTotalBytes: Number(message.memoryTotalBytes),
    memoryFreeBytes: Number(message.memoryFreeBytes),
    softwareVersion: message.softwareVersion,
    protocolMin: message.protocolMin,
    protocolMax: message.protocolMax,
    models: message.models.map(modelOffer),
    ringAddress: message.ringAddress,
    announcedAtUnix: message.announcedAtUnix,
    ttlSeconds: message.ttlSeconds,
    archive: message.archive ? archiveOffer(message.archive) : null,
    httpAddress: message.httpAddress,
    hostId: message.hostId,
  };
}

function archiveOffer(message: ArchiveOfferMessage): ArchiveOffer {
  return {
    capacityBytes: Number(message.capacityBytes),
    freeBytes: Number(message.freeBytes),
    port: message.port,
    arithmetic: message.arithmetic,
  };
}

/** One node, as the answering node knows it. */
export function nodeStatus(message: NodeStatusMessage): NodeStatus {
  const nodeId = message.card?.nodeId ?? "";
  // A card that was received carries its owner's protocol; a bare id does not.
  const known = message.card && message.card.protocolMax > 0 ? card(message.card) : null;
  return {
    nodeId,
    name: known?.name ?? nodeId.slice(0, 12),
    address: known?.addresses[0] ?? "",
    liveness: enumName(LivenessSchema, message.liveness, LIVENESSES),
    ageSeconds: message.ageSeconds,
    roundTripSeconds: message.roundTripSeconds || null,
    isSelf: message.isSelf,
    card: known,
    models: known?.models ?? [],
    archive: known?.archive ?? null,
  };
}

function snapshot(message: FleetSnapshotMessage): FleetSnapshot {
  return {
    type: "snapshot",
    fleetName: message.fleetName,
    nodes: message.nodes.map(nodeStatus),
  };
}

/** One event of a watch; null for a kind that is newer than this client. */
export function fleetEvent(message: WatchFleetResponse): FleetEvent | null {
  switch (message.kind.case) {
    case "snapshot":
      return snapshot(message.kind.value);
    case "changed":
      return { type: "changed", node: nodeStatus(message.kind.value) };
    case "removedNodeId":
      return { type: "removed", nodeId: message.kind.value };
    case undefined:
      return null;
  }
}

/** A node as it sees itself. */
export function node(message: GetNodeResponse): Node {
  const { load } = message;
  return {
    card: card(message.card ?? create(CapabilityCardSchema)),
    links: message.links.map((link) => ({
      nodeId: link.nodeId,
      roundTripSeconds: link.roundTripSeconds,
      breakerOpen: link.breakerOpen,
      archiveWaitSeconds: link.archiveWaitSeconds || null,
    })),
    load: {
      sessionCount: load?.sessionCount ?? 0,
      generatingCount: load?.generatingCount ?? 0,
      draftStreamCount: load?.draftStreamCount ?? 0,
      kvBytes: Number(load?.kvBytes ?? 0),
      kvBudgetBytes: Number(load?.kvBudgetBytes ?? 0),
      memoryFreeBytes: Number(load?.memoryFreeBytes ?? 0),
      archiveCount: load?.archiveCount ?? 0,
      archiveBytes: Number(load?.archiveBytes ?? 0),
      archiveBudgetBytes: Number(load?.archiveBudgetBytes ?? 0),
    },
    acceptances: message.acceptances.map((each) => ({
      verifierModelId: each.verifierModelId,
      proposerModelId: each.proposerModelId,
      acceptanceRate: each.acceptanceRate,
      draftedCount: Number(each.draftedCount),
      acceptanceRateLow: each.acceptanceRateLow,
      acceptanceRateHigh: each.acceptanceRateHigh,
      sessionCount: each.sessionCount,
    })),
    metricsAddress: message.metricsAddress,
    draining: message.draining,
    tensorLinks: message.tensorLinks.map(tensorLink),
    httpAddress: message.httpAddress,
    startedAtUnix: message.startedAtUnix,
    seedFaults: message.seedFaults.map((fault) => ({
      address: fault.address,
      reason: fault.reason,
      message: fault.message,
      mend: fault.mend,
      sinceSeconds: fault.sinceSeconds,
      attemptCount: fault.attemptCount,
    })),
  };
}

function tensorLink(message: TensorLinkStatus): TensorLink {
  return {
    peerNodeId: message.peerNodeId,
    purpose: enumName(LinkPurposeSchema, message.purpose, LINK_PURPOSES),
    transport: enumName(TransportSchema, message.transport, TRANSPORTS),
    generation: message.generation,
    bytesPerSecond: message.bytesPerSecond,
    reason: message.reason,
    changedSecondsAgo: message.changedSecondsAgo,
    isCaller: message.isCaller,
    tensorCount: Number(message.tensorCount),
    byteCount: Number(message.byteCount),
    demotionCount: message.demotionCount,
  };
}
