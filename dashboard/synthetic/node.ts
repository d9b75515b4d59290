import { create, type MessageInitShape } from "@bufbuild/protobuf";

import {
  CapabilityCardSchema,
  DropReason,
  EndedSessionSchema,
  EventSeverity,
  GetNodeResponseSchema,
  KvStrategy,
  LinkPurpose,
  NodeEventSchema,
  NodeSampleSchema,
  PlacementSchema,
  Role,
  SessionOutcome,
  Transport,
  WatchNodeResponseSchema,
  WatchSessionsResponseSchema,
  type CapabilityCard,
  type GetNodeResponse,
  type NodeEvent,
  type NodeSample,
  type Placement,
  type StoredModel,
  type Transfer,
  type WatchNodeResponse,
  type WatchSessionsResponse,
} from "./contract";
import { Feed } from "./feed";
import type { Machine } from "./machines";
import type { Random } from "./random";
import { SyntheticSession } from "./session";

const SAMPLE_LIMIT = 900;
const EVENT_LIMIT = 256;
/** Share of a machine's memory that its system and its models take. */
const TAKEN = 0.38;

/** Of sessions that somebody opened, which do nothing by themselves. */
export const CHAT_LABEL = "dashboard chat";

/** What a node needs to know of another one. */
export interface Peer {
  machine: Machine;
  alive: boolean;
  roundTripSeconds: number;
  address: string;
}

/** One synthetic machine: its state and its activity, told to whoever watches. */
export class SyntheticNode {
  readonly machine: Machine;
  readonly sessions = new Map<string, SyntheticSession>();
  readonly transfers = new Map<string, Transfer>();
  /** What pulls brought to its disk, by name. */
  readonly stored = new Map<string, StoredModel>();
  readonly nodeFeed = new Feed<WatchNodeResponse>();
  readonly sessionFeed = new Feed<WatchSessionsResponse>();
  readonly random: Random;
  /** host:port once it serves. */
  address = "";
  peers: Peer[] = [];
  draining = false;
  ringUp = true;
  #startedAt = Date.now() - 3600_000;
  #samples: NodeSample[] = [];
  #events: NodeEvent[] = [];
  #eventNumber = 0;
  #sessionNumber = 0;
  #sequence = 1;

  constructor(machine: Machine, random: Random) {
    this.machine = machine;
    this.random = random;
    this.#samples = this.#past();
  }

  get verifies(): boolean {
    return this.machine.offers.some((offer) => offer.role === Role.VERIFIER);
  }

  /** It died and was started again: nothing of before is left. */
  restart(): void {
    this.sessions.clear();
    this.transfers.clear();
    this.#samples = [];
    this.#events = [];
    this.#eventNumber = 0;
    this.#startedAt = Date.now();
    this.#sequence += 1;
  }

  card(): CapabilityCard {
    const { machine } = this;
    return create(CapabilityCardSchema, {
      nodeId: machine.nodeId,
      name: machine.name,
      fleetName: "synthetic",
      bootId: `${this.#startedAt}`,
      incarnation: BigInt(this.#sequence),
      sequence: this.#sequence,
      addresses: [this.address],
      platform: machine.platform,
      accelerator: machine.accelerator,
      memoryTotalBytes: BigInt(machine.memoryTotalBytes),
      memoryFreeBytes: BigInt(Math.round(machine.memoryTotalBytes * (1 - TAKEN))),
      softwareVersion: "0.1.0",
      protocolMin: 1,
      protocolMax: 1,
      models: machine.offers,
      ringAddress: machine.ring ? "127.0.0.1:7200" : "",
      announcedAtUnix: Date.now() / 1000,
      ttlSeconds: 3600,
      hostId: machine.hostId,
    });
  }

  /** The node as GetNode answers. */
  report(): GetNodeResponse {
    const load = this.#load();
    return create(GetNodeResponseSchema, {
      card: this.card(),
      links: this.peers.map((peer) => ({
        nodeId: peer.machine.nodeId,
        roundTripSeconds: peer.roundTripSeconds,
        breakerOpen: false,
      })),
      load: {
        ...load,
        kvBudgetBytes: BigInt(Math.round(this.machine.memoryTotalBytes * 0.25)),
        archiveBudgetBytes: BigInt(this.machine.archiveBytes),
        archiveCount: this.machine.archiveBytes > 0 ? 1 : 0,
      },
      acceptances: this.verifies
        ? [
            {
              verifierModelId: "qwen3-8b",
              proposerModelId: "qwen3-8b-dflash",
              acceptanceRate: 0.72,
              draftedCount: 41_000n,
              acceptanceRateLow: 0.58,
              acceptanceRateHigh: 0.84,
              sessionCount: 23,
            },
          ]
        : [],
      draining: this.draining,
      tensorLinks: this.#links(),
      httpAddress: "127.0.0.1:7300",
      metricsAddress: "127.0.0.1:7300",
      startedAtUnix: this.#startedAt / 1000,
    });
  }

  history(seconds: number): WatchNodeResponse {
    return create(WatchNodeResponseSchema, {
      kind: {
        case: "history",
        value: {
          node: this.report(),
          sampleSeconds: 1,
          samples: this.#samples.slice(-Math.round(seconds)),
          events: this.#events,
          transfers: [...this.transfers.values()],
        },
      },
    });
  }

  sessionSnapshot(blockCount: number): WatchSessionsResponse {
    const sessions = [...this.sessions.values()].map((row) => row.activity(blockCount));
    return create(WatchSessionsResponseSchema, { kind: { case: "snapshot", value: { sessions } } });
  }

  /** The second that ends now. */
  sampleSecond(): void {
    const sums = { tokens: 0, prefilled: 0, drafted: 0, accepted: 0, forwards: 0 };
    for (const { second } of this.sessions.values()) {
      for (const key of Object.keys(sums) as (keyof typeof sums)[]) {
        sums[key] += second[key];
        second[key] = 0;
      }
    }
    const load = this.#load();
    const drafting = this.machine.offers.some((offer) => offer.modelId === "qwen3-8b-dflash");
    const sample = create(NodeSampleSchema, {
      ...load,
      archiveBytes: load.archiveBytes,
      atUnix: Date.now() / 1000,
      tokensPerSecond: sums.tokens,
      prefillTokensPerSecond: sums.prefilled,
      draftedCount: sums.drafted,
      acceptedCount: sums.accepted,
      verifyForwardCount: sums.forwards,
      draftsPerSecond: drafting ? this.random.between(20, 60) : 0,
      linkBytesPerSecond: this.#links().length * this.random.between(2e6, 9e6),
      ...this.#cpu(Date.now() / 1000),
    });
    this.#samples.push(sample);
    if (this.#samples.length > SAMPLE_LIMIT) this.#samples.shift();
    this.nodeFeed.send(
      create(WatchNodeResponseSchema, { kind: { case: "sample", value: sample } }),
    );
  }

  /** Tells what happened. */
  event(init: MessageInitShape<typeof NodeEventSchema>): void {
    this.#eventNumber += 1;
    const event = create(NodeEventSchema, {
      severity: EventSeverity.INFO,
      ...init,
      number: BigInt(this.#eventNumber),
      atUnix: Date.now() / 1000,
    });
    this.#events.push(event);
    if (this.#events.length > EVENT_LIMIT) this.#events.shift();
    this.nodeFeed.send(create(WatchNodeResponseSchema, { kind: { case: "event", value: event } }));
  }

  /** Tells the node as it is now. */
  tellNode(): void {
    const value = this.report();
    this.nodeFeed.send(create(WatchNodeResponseSchema, { kind: { case: "node", value } }));
  }

  transfer(transfer: Transfer): void {
    this.transfers.set(transfer.transferId, transfer);
    this.nodeFeed.send(
      create(WatchNodeResponseSchema, { kind: { case: "transfer", value: transfer } }),
    );
  }

  /** Opens a session on the verifier `modelId`. */
  open(modelId: string, label: string, kvStrategy: KvStrategy): SyntheticSession | undefined {
    const offer = this.machine.offers.find(
      (candidate) => candidate.modelId === modelId && candidate.role === Role.VERIFIER,
    );
    if (offer === undefined) return undefined;
    this.#sessionNumber += 1;
    const sessionId = `${this.machine.name}-s${this.#sessionNumber}`;
    const proposer = this.#proposer(modelId);
    const bothRings = proposer?.machine.ring === true && this.machine.ring;
    const session = new SyntheticSession(
      {
        sessionId,
        label,
        kvStrategy,
        verifier: this.placement(modelId),
        proposer: proposer && placementOf(proposer.machine, proposer.address, "qwen3-8b-dflash"),
        transport:
          proposer === undefined
            ? Transport.UNSPECIFIED
            : bothRings
              ? Transport.RING
              : Transport.GRPC,
        stepSeconds: offer.stepCosts[0]?.seconds ?? 0.02,
        kvBytesPerToken: Number(offer.kvBytesPerToken),
      },
      this.random,
    );
    this.sessions.set(sessionId, session);
    this.tellSession(session);
    return session;
  }

  tellSession(session: SyntheticSession): void {
    const value = session.change();
    this.sessionFeed.send(
      create(WatchSessionsResponseSchema, { kind: { case: "changed", value } }),
    );
  }

  close(sessionId: string, outcome: SessionOutcome): boolean {
    if (!this.sessions.delete(sessionId)) return false;
    const value = create(EndedSessionSchema, { sessionId, outcome });
    this.sessionFeed.send(create(WatchSessionsResponseSchema, { kind: { case: "ended", value } }));
    return true;
  }

  /** The ring of its links breaks, or is built again. */
  moveLinks(up: boolean): void {
    this.ringUp = up;
    const reason = up
      ? "The ring answers again."
      : "The ring did not answer for 2.0 s; tensors go over gRPC.";
    for (const session of this.sessions.values()) {
      if (session.setting.transport !== Transport.RING) continue;
      session.move(up ? Transport.RING : Transport.GRPC, reason);
      this.tellSession(session);
    }
    this.event({
      severity: up ? EventSeverity.INFO : EventSeverity.WARNING,
      kind: up ? "LINK_PROMOTED" : "LINK_DEMOTED",
      message: reason,
      mend: up ? "" : "Check the cable between the two, then: fleet status --links",
      subjectNodeId: this.#proposer("qwen3-8b")?.machine.nodeId ?? "",
    });
    this.tellNode();
  }

  /** A peer died or came back: its sessions decode alone, or draft again. */
  heed(peer: Peer): void {
    for (const session of this.sessions.values()) {
      if (session.setting.proposer?.nodeId !== peer.machine.nodeId) continue;
      session.drop(peer.alive ? DropReason.UNSPECIFIED : DropReason.UNREACHABLE);
      this.tellSession(session);
    }
    this.tellNode();
  }

  placement(modelId: string): Placement {
    return placementOf(this.machine, this.address, modelId);
  }

  #proposer(modelId: string): Peer | undefined {
    if (modelId !== "qwen3-8b") return undefined;
    const able = this.peers.filter((peer) =>
      peer.machine.offers.some((offer) => offer.modelId === "qwen3-8b-dflash"),
    );
    return able.sort((one, other) => one.roundTripSeconds - other.roundTripSeconds)[0];
  }

  #links(): MessageInitShape<typeof GetNodeResponseSchema>["tensorLinks"] & object[] {
    const proposer = this.#proposer("qwen3-8b");
    const used = [...this.sessions.values()].some((row) => row.setting.proposer !== undefined);
    if (proposer === undefined || !used || !proposer.alive) return [];
    const ring = this.machine.ring && proposer.machine.ring && this.ringUp;
    return [
      {
        peerNodeId: proposer.machine.nodeId,
        purpose: LinkPurpose.FEATURES,
        transport: ring ? Transport.RING : Transport.GRPC,
        generation: 1,
        bytesPerSecond: this.random.between(4e8, 9e8),
        reason: ring ? "Both ends have a ring." : "One end has no ring.",
        changedSecondsAgo: 42,
        isCaller: true,
        tensorCount: 1234n,
        byteCount: 98_000_000n,
        demotionCount: this.ringUp ? 0 : 1,
      },
    ];
  }

  #load(): {
    sessionCount: number;
    generatingCount: number;
    draftStreamCount: number;
    kvBytes: bigint;
    memoryFreeBytes: bigint;
    archiveBytes: bigint;
  } {
    const sessions = [...this.sessions.values()];
    const kvBytes = sessions.reduce((sum, session) => sum + session.kvBytes, 0);
    const free = this.machine.memoryTotalBytes * (1 - TAKEN) - kvBytes;
    return {
      sessionCount: sessions.length,
      generatingCount: sessions.filter((session) => session.generating).length,
      draftStreamCount: this.machine.offers.some((row) => row.role === Role.PROPOSER) ? 1 : 0,
      kvBytes: BigInt(Math.round(kvBytes)),
      memoryFreeBytes: BigInt(Math.round(free)),
      archiveBytes: BigInt(Math.round(this.machine.archiveBytes * 0.4)),
    };
  }

  /** Busy cores at a time in seconds; nodes of one machine tell of the same. */
  #cpu(at: number): { cpuShare: number; processCpuShare: number } {
    const phase = Number.parseInt(this.machine.hostId.slice(0, 4), 16);
    const cpuShare = 0.5 + 0.3 * Math.sin(at / 30 + phase);
    return { cpuShare, processCpuShare: this.verifies ? cpuShare * 0.7 : cpuShare * 0.2 };
  }

  /** Fifteen minutes that could have been. */
  #past(): NodeSample[] {
    const now = Date.now() / 1000;
    const base = this.verifies ? this.random.between(20, 90) : 0;
    return Array.from({ length: SAMPLE_LIMIT }, (_, index) => {
      const wave = 1 + 0.3 * Math.sin(index / 40) + this.random.between(-0.1, 0.1);
      return create(NodeSampleSchema, {
        atUnix: now - SAMPLE_LIMIT + index + 0.5,
        tokensPerSecond: base * wave,
        sessionCount: 2,
        generatingCount: base > 0 ? 1 : 0,
        kvBytes: this.verifies ? 300_000_000n : 0n,
        memoryFreeBytes: BigInt(Math.round(this.machine.memoryTotalBytes * (1 - TAKEN))),
        archiveBytes: BigInt(Math.round(this.machine.archiveBytes * 0.4)),
        draftedCount: Math.round(base),
        acceptedCount: Math.round(base * 0.6),
        verifyForwardCount: Math.round(base / 3),
        ...this.#cpu(now - SAMPLE_LIMIT + index),
      });
    });
  }
}

export function placementOf(machine: Machine, address: string, modelId: string): Placement {
  return create(PlacementSchema, {
    nodeId: machine.nodeId,
    nodeName: machine.name,
    address,
    modelId,
  });
}
