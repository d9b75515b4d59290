import { create, type MessageInitShape } from "@bufbuild/protobuf";

import {
  EventSeverity,
  KvStrategy,
  Liveness,
  NodeEventSchema,
  NodeStatusSchema,
  Role,
  SessionOutcome,
  StoredModelSchema,
  TransferKind,
  TransferSchema,
  TransferState,
  WatchFleetResponseSchema,
  type NodeStatus,
  type StoredModel,
  type Transfer,
  type WatchFleetResponse,
} from "./contract";
import { Feed } from "./feed";
import { machine, sha256 } from "./machines";
import { CHAT_LABEL, SyntheticNode, type Peer } from "./node";
import { seeded, type Random } from "./random";

/** Milliseconds between steps of the sessions; nodes tell of them as often, at most. */
const STEP_MS = 100;
/** Milliseconds after which a silent node is suspect, and dead. */
const SUSPECT_MS = 1000;
const DEAD_MS = 2500;
const GIB = 2 ** 30;
/** By model. */
export const WEIGHT_BYTES: Readonly<Record<string, number>> = {
  "qwen3-8b": 4.7 * GIB,
  "qwen3-8b-dflash": 1.1 * GIB,
  tiny: 7_600_000,
};

export interface Member {
  node: SyntheticNode;
  liveness: Liveness;
  /** Changes of the fleet, as this member tells them. */
  changes: Feed<WatchFleetResponse>;
}

/** A fleet of nodes that live by one clock. */
export class SyntheticFleet {
  readonly members: readonly Member[];
  readonly #random: Random;
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #busy: boolean;
  #transferNumber = 0;

  /** `busy`: sessions, links and downloads by themselves; otherwise only what commands do. */
  constructor(count: number, seed: number, busy: boolean) {
    this.#random = seeded(seed, "fleet");
    this.#busy = busy;
    this.members = Array.from({ length: count }, (_, index) => ({
      node: new SyntheticNode(machine(index), seeded(seed, `node ${index}`)),
      liveness: Liveness.ALIVE,
      changes: new Feed<WatchFleetResponse>(),
    }));
  }

  /** Begins once every node has its address. */
  begin(): void {
    for (const { node } of this.members) {
      node.peers = this.members
        .filter((other) => other.node !== node)
        .map((other) => ({
          machine: other.node.machine,
          alive: true,
          roundTripSeconds: this.#random.between(0.0002, 0.004),
          address: other.node.address,
        }));
      node.event({ kind: "NODE_STARTED", message: `${node.machine.name} joined the fleet.` });
      for (const { modelId, weightsDigest } of node.machine.offers) {
        if (weightsDigest !== "") node.transfer(pastLoad(modelId));
      }
    }
    // Of those that have a copy the first serves the model, the second does not, the third is not ours.
    for (const index of [0, 1, 3]) {
      const model = storedModel("qwen3-8b", ["studio-07"]);
      this.members[index]?.node.stored.set(model.modelId, model);
    }
    for (const member of this.members) this.#live(member);
    if (this.#busy) {
      this.#every(8000, () => this.#moveSomeLink());
      this.#every(15_000, () => this.#download());
      this.#download();
    }
  }

  find(name: string): Member | undefined {
    return this.members.find(({ node }) => node.machine.name === name);
  }

  status(member: Member, of: SyntheticNode): NodeStatus {
    const self = member.node === of;
    const peer = of.peers.find((row) => row.machine === member.node.machine);
    return create(NodeStatusSchema, {
      card: member.node.card(),
      liveness: member.liveness,
      ageSeconds: self ? 0 : 0.2,
      roundTripSeconds: self ? 0 : (peer?.roundTripSeconds ?? 0),
      isSelf: self,
    });
  }

  snapshot(of: SyntheticNode): WatchFleetResponse {
    const nodes = this.members.map((member) => this.status(member, of));
    return create(WatchFleetResponseSchema, {
      kind: { case: "snapshot", value: { nodes, fleetName: "synthetic" } },
    });
  }

  /** The node was silenced: the others notice, as they would a power cut. */
  noticeDeath(member: Member): void {
    this.#later(SUSPECT_MS, () => this.#judge(member, Liveness.SUSPECT));
    this.#later(DEAD_MS, () => this.#judge(member, Liveness.DEAD));
  }

  /** The node answers again. */
  noticeReturn(member: Member): void {
    member.node.restart();
    this.#judge(member, Liveness.ALIVE);
  }

  /** The node's card has changed: every member tells of it. */
  announce(member: Member): void {
    for (const { node, changes } of this.members) {
      const value = this.status(member, node);
      changes.send(create(WatchFleetResponseSchema, { kind: { case: "changed", value } }));
    }
    member.node.tellNode();
  }

  end(): void {
    for (const timer of this.#timers) clearInterval(timer);
  }

  #judge(member: Member, liveness: Liveness): void {
    if (member.liveness === liveness) return;
    member.liveness = liveness;
    const alive = liveness === Liveness.ALIVE;
    for (const { node, changes } of this.members) {
      const peer = node.peers.find((row) => row.machine === member.node.machine);
      if (peer !== undefined) this.#tellPeer(node, peer, liveness);
      const value = this.status(member, node);
      changes.send(create(WatchFleetResponseSchema, { kind: { case: "changed", value } }));
    }
    if (alive) member.node.event({ kind: "NODE_STARTED", message: "Started again." });
  }

  #tellPeer(node: SyntheticNode, peer: Peer, liveness: Liveness): void {
    peer.alive = liveness === Liveness.ALIVE;
    const { name, nodeId } = peer.machine;
    const said: Record<number, MessageInitShape<typeof NodeEventSchema>> = {
      [Liveness.ALIVE]: { kind: "PEER_JOINED", message: `${name} answers again.` },
      [Liveness.SUSPECT]: {
        kind: "PEER_SUSPECT",
        message: `${name} does not answer probes.`,
        severity: EventSeverity.WARNING,
      },
      [Liveness.DEAD]: {
        kind: "PEER_DEAD",
        message: `${name} is dead: it did not refute in time.`,
        mend: `Look whether ${name} is on, then start its agent: fleet join`,
        severity: EventSeverity.ERROR,
      },
    };
    // One of them tells, so that lists stay readable.
    if (node === this.#witness(peer)) node.event({ ...said[liveness], subjectNodeId: nodeId });
    node.heed(peer);
  }

  #witness(peer: Peer): SyntheticNode | undefined {
    return this.members.find(
      ({ node, liveness }) => node.machine !== peer.machine && liveness === Liveness.ALIVE,
    )?.node;
  }

  #live(member: Member): void {
    const { node } = member;
    this.#beat(1000, () => {
      if (member.liveness === Liveness.ALIVE) node.sampleSecond();
    });
    if (!this.#busy || !node.verifies) return;
    this.#beat(STEP_MS, () => {
      if (member.liveness === Liveness.ALIVE) this.#work(node);
    });
    for (let count = node.random.whole(1, 2); count > 0; count -= 1) this.#open(node);
  }

  #work(node: SyntheticNode): void {
    const now = Date.now();
    for (const session of node.sessions.values()) {
      if (session.setting.label === CHAT_LABEL) continue;
      if (session.advance(now)) node.tellSession(session);
      if (session.generations > 6 && !session.generating) {
        node.close(session.setting.sessionId, SessionOutcome.CLOSED);
        this.#open(node);
      }
    }
  }

  #open(node: SyntheticNode): void {
    const offer = node.machine.offers.find((row) => row.role === Role.VERIFIER);
    if (offer === undefined) return;
    const labels = ["coding agent", "notes", "evening digest", "mail triage"];
    const label = labels[node.random.whole(0, labels.length - 1)] ?? "";
    const kept = node.random.chance(0.3) ? KvStrategy.FULL : KvStrategy.SINK_WINDOW;
    node.open(offer.modelId, label, kept);
    node.tellNode();
  }

  #moveSomeLink(): void {
    const able = this.members.filter(
      ({ node, liveness }) =>
        liveness === Liveness.ALIVE &&
        node.machine.ring &&
        node.machine.offers[0]?.modelId === "qwen3-8b",
    );
    const chosen = able[this.#random.whole(0, able.length - 1)];
    chosen?.node.moveLinks(!chosen.node.ringUp);
  }

  /** A download of eight gibibytes in half a minute, then its load; each fifth one fails. */
  #download(): void {
    const able = this.members.filter(({ liveness }) => liveness === Liveness.ALIVE);
    const member = able[this.#random.whole(0, able.length - 1)];
    if (member === undefined) return;
    this.#transferNumber += 1;
    const failing = this.#transferNumber % 5 === 3;
    const transfer = create(TransferSchema, {
      transferId: `t${this.#transferNumber}`,
      kind: TransferKind.DOWNLOAD,
      modelId: "Qwen/Qwen3-8B",
      state: TransferState.RUNNING,
      totalBytes: BigInt(8 * GIB),
      startedAtUnix: Date.now() / 1000,
    });
    let done = 0;
    const timer = this.#every(400, () => {
      const rate = this.#random.between(2.2e8, 3.4e8);
      done = Math.min(8 * GIB, done + rate * 0.4);
      const failed = failing && done > 3 * GIB;
      const ended = failed || done >= 8 * GIB;
      member.node.transfer(
        create(TransferSchema, {
          ...transfer,
          doneBytes: BigInt(Math.round(done)),
          bytesPerSecond: ended ? 0 : rate,
          remainingSeconds: ended ? 0 : (8 * GIB - done) / rate,
          state: failed ? TransferState.FAILED : ended ? TransferState.DONE : TransferState.RUNNING,
          error: failed
            ? "The hub closed the connection. Start it again: it goes on where it was."
            : "",
        }),
      );
      if (ended) this.#stop(timer);
    });
  }

  /** Again and again at a phase of its own: an interval's would drift into those of the others. */
  #beat(milliseconds: number, act: () => void): void {
    let due = performance.now() + this.#random.between(0, milliseconds);
    const wait = (): void => {
      this.#later(Math.max(0, due - performance.now()), () => {
        // A timer may ring a little early. Beats that were missed are not caught up with.
        do due += milliseconds;
        while (due <= performance.now());
        wait();
        act();
      });
    };
    wait();
  }

  #every(milliseconds: number, act: () => void): NodeJS.Timeout {
    const timer = setInterval(act, milliseconds);
    this.#timers.add(timer);
    return timer;
  }

  #later(milliseconds: number, act: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      act();
    }, milliseconds);
    this.#timers.add(timer);
  }

  #stop(timer: NodeJS.Timeout): void {
    clearInterval(timer);
    this.#timers.delete(timer);
  }
}

/** What a pull brought three quarters of an hour ago. */
function storedModel(modelId: string, sourceNames: string[]): StoredModel {
  return create(StoredModelSchema, {
    modelId,
    byteCount: BigInt(Math.round(WEIGHT_BYTES[modelId] ?? 0)),
    filesDigest: sha256(`files of ${modelId}`),
    isWhole: true,
    pulledAtUnix: Date.now() / 1000 - 2700,
    sourceNames,
  });
}

/** How a model came into a node that serves it. */
function pastLoad(modelId: string): Transfer {
  const bytes = BigInt(Math.round(WEIGHT_BYTES[modelId] ?? 0));
  return create(TransferSchema, {
    transferId: `load ${modelId}`,
    kind: TransferKind.LOAD,
    modelId,
    state: TransferState.DONE,
    doneBytes: bytes,
    totalBytes: bytes,
    startedAtUnix: Date.now() / 1000 - 3000,
  });
}
