import type {
  FleetSnapshot,
  Node,
  NodeEvent,
  NodeHistory,
  NodeSample,
  NodeStatus,
  SessionActivity,
  Transfer,
} from "@kakeya/runtime";

import type {
  EventView,
  FleetView,
  GatewayView,
  Message,
  NodeView,
  PullView,
  Sample,
  TransferView,
} from "../../shared/messages";
import { SAMPLE_LIMIT, withLoadOf } from "../../shared/sample";
import { LIMITS } from "../../shared/limits";
import { eventView, nodeView, sampleView, transferView, type Reach } from "../views/node_view";
import { ClockOffset } from "./clock_offset";
import { SessionRows } from "./session_rows";

/** Between the samples of nodes. */
const SAMPLE_MS = 1000;
/** Milliseconds for which a node that left is shown. */
const LEFT_MS = 60_000;

interface Known {
  status: NodeStatus;
  /** Null before the node itself said anything. */
  node: Node | null;
  reach: Reach;
  clock: ClockOffset;
  view: Omit<NodeView, "samples">;
  samples: Sample[];
  transfers: Map<string, TransferView>;
  /** What was heard of pulls, by their transfers' ids. */
  pulls: Map<string, PullView>;
  /** By `clock`; undefined while it has not left. */
  leftAt: number | undefined;
}

/**
 * The fleet as the process knows it. Every change is told to `tell` as the
 * message that brings a page's copy to the same state.
 */
export class FleetState {
  readonly #tell: (message: Message) => void;
  readonly #clock: () => number;
  readonly #nodes = new Map<string, Known>();
  readonly #sessions: SessionRows;
  #events: EventView[] = [];
  readonly #eventKeys = new Set<string>();
  #fleetName = "";
  #gateway: GatewayView = { address: "", waitingFor: "", fault: "" };

  /** `clock`: milliseconds since 1970. */
  constructor(tell: (message: Message) => void, clock: () => number) {
    this.#tell = tell;
    this.#clock = clock;
    this.#sessions = new SessionRows(tell, clock);
  }

  /** The whole, for a page that begins or fell behind. */
  message(): Message {
    return { type: "fleet", fleet: this.view(), now: this.#clock() };
  }

  view(): FleetView {
    const known = [...this.#nodes.values()];
    return {
      fleetName: this.#fleetName,
      gateway: this.#gateway,
      nodes: known.map(({ view, samples }) => ({ ...view, samples: [...samples] })),
      sessions: this.#sessions.all(),
      events: [...this.#events],
      transfers: known.flatMap(({ transfers }) => [...transfers.values()]),
    };
  }

  /** Id of the node that answers at `address`; empty when none is known to. */
  nodeAt(address: string): string {
    for (const { status } of this.#nodes.values()) {
      if (status.address === address || status.card?.addresses.includes(address)) {
        return status.nodeId;
      }
    }
    return "";
  }

  /** Where the node answers, host:port; empty when it is not known, or is dead or has left. */
  addressOf(nodeId: string): string {
    const status = this.#nodes.get(nodeId)?.status;
    return status === undefined || isGone(status) ? "" : status.address;
  }

  /** This process's clock less the node's, in milliseconds; 0 while the node's is not known. */
  clockOffset(nodeId: string): number {
    return this.#nodes.get(nodeId)?.clock.milliseconds ?? 0;
  }

  /** Nodes that may answer. */
  living(): { nodeId: string; address: string }[] {
    return [...this.#nodes.values()].flatMap(({ status }) =>
      isGone(status) || status.address === ""
        ? []
        : [{ nodeId: status.nodeId, address: status.address }],
    );
  }

  /** The node at `address` tells of the fleet. */
  watched(address: string): void {
    this.#setGateway({ address, waitingFor: "", fault: "" });
  }

  /** No node tells of the fleet: what is waited for, and why the first that was asked does not. */
  waits(waitingFor: string, fault: string): void {
    this.#setGateway({ address: this.#gateway.address, waitingFor, fault });
  }

  #setGateway(gateway: GatewayView): void {
    const before = this.#gateway;
    this.#gateway = gateway;
    if (JSON.stringify(gateway) !== JSON.stringify(before))
      this.#tell({ type: "gateway", gateway });
  }

  snapshot(fleet: FleetSnapshot): void {
    const present = new Set(fleet.nodes.map((status) => status.nodeId));
    const renamed = this.#fleetName !== fleet.fleetName;
    this.#fleetName = fleet.fleetName;
    for (const nodeId of this.#nodes.keys()) if (!present.has(nodeId)) this.removed(nodeId);
    for (const status of fleet.nodes) this.changed(status);
    // No smaller message carries the fleet's name.
    if (renamed) this.#tell(this.message());
  }

  changed(status: NodeStatus): void {
    const known = this.#nodes.get(status.nodeId);
    const leftAt = status.liveness === "left" ? this.#leftAt(status, known) : undefined;
    if (known === undefined) {
      if (leftAt !== undefined && this.#clock() - leftAt > LEFT_MS) return;
      const reach = { reachable: false, reason: "It was not asked yet.", heardAt: 0 };
      this.#nodes.set(status.nodeId, {
        status,
        node: null,
        reach,
        clock: new ClockOffset(),
        view: nodeView(status, null, reach, 0),
        samples: [],
        transfers: new Map(),
        pulls: new Map(),
        leftAt,
      });
    } else {
      known.status = status;
      known.leftAt = leftAt;
    }
    if (isGone(status)) {
      this.#sessions.lost(status.nodeId, status.liveness === "left" ? "drained" : "lost");
    }
    this.#refresh(status.nodeId);
  }

  /** What it was told of a node that left has the time of its farewell; later words do not move it. */
  #leftAt(status: NodeStatus, known: Known | undefined): number {
    return known?.leftAt ?? this.#clock() - status.ageSeconds * 1000;
  }

  /** Forgets nodes that left a minute ago: who leaves is not missed. */
  forgetLeft(): void {
    for (const [nodeId, { leftAt }] of this.#nodes) {
      if (leftAt !== undefined && this.#clock() - leftAt > LEFT_MS) this.removed(nodeId);
    }
  }

  removed(nodeId: string): void {
    if (!this.#nodes.delete(nodeId)) return;
    this.#sessions.lost(nodeId, "lost");
    this.#tell({ type: "removed", nodeId });
  }

  /** The node itself answers. */
  reached(nodeId: string): void {
    const known = this.#nodes.get(nodeId);
    if (known === undefined) return;
    known.reach = { reachable: true, reason: "", heardAt: this.#clock() };
    this.#refresh(nodeId);
  }

  /** The node itself does not answer; it stays, with what was known. */
  unreached(nodeId: string, reason: string): void {
    const known = this.#nodes.get(nodeId);
    if (known === undefined) return;
    if (!known.reach.reachable && known.reach.reason === reason) return;
    known.reach = { ...known.reach, reachable: false, reason };
    this.#refresh(nodeId);
  }

  /** The first word of a node's watch: all that it did before. */
  history(nodeId: string, history: NodeHistory): void {
    const known = this.#nodes.get(nodeId);
    if (known === undefined) return;
    // A node that was started again counts its transfers anew.
    if (known.node?.card.bootId !== history.node.card.bootId) known.pulls.clear();
    known.node = history.node;
    const latest = history.samples.at(-1);
    if (latest !== undefined) {
      // The latest second ended at most one ago.
      known.clock.heard(latest.atUnix * 1000 + SAMPLE_MS / 2, this.#clock());
    }
    const offset = known.clock.milliseconds;
    known.samples = history.samples
      .slice(-SAMPLE_LIMIT)
      .map((sample) => sampleView(sample, offset));
    for (const event of history.events) this.#keepEvent(this.#eventView(known, event));
    known.transfers = new Map();
    for (const transfer of history.transfers) this.#keepTransfer(known, transfer);
    known.reach = { reachable: true, reason: "", heardAt: this.#clock() };
    known.view = nodeView(known.status, known.node, known.reach, offset);
    this.#tellAll(known);
  }

  node(nodeId: string, node: Node): void {
    const known = this.#nodes.get(nodeId);
    if (known === undefined) return;
    known.node = node;
    known.reach = { ...known.reach, heardAt: this.#clock() };
    this.#refresh(nodeId);
  }

  sample(nodeId: string, sample: NodeSample): void {
    const known = this.#nodes.get(nodeId);
    if (known === undefined) return;
    this.#heard(known, sample.atUnix);
    const view = sampleView(sample, known.clock.milliseconds);
    known.samples.push(view);
    if (known.samples.length > SAMPLE_LIMIT) known.samples.shift();
    known.view = withLoadOf(known.view, view);
    this.#tell({ type: "sample", nodeId, sample: view });
  }

  event(nodeId: string, event: NodeEvent): void {
    const known = this.#nodes.get(nodeId);
    if (known === undefined) return;
    this.#heard(known, event.atUnix);
    const view = this.#eventView(known, event);
    if (this.#keepEvent(view)) this.#tell({ type: "event", event: view });
  }

  transfer(nodeId: string, transfer: Transfer): void {
    const known = this.#nodes.get(nodeId);
    if (known === undefined) return;
    this.#tell({ type: "transfer", transfer: this.#keepTransfer(known, transfer) });
  }

  /** The pull that is seen as that transfer, as it was told to who asked for it. */
  pull(nodeId: string, transferId: string, pull: PullView): void {
    const known = this.#nodes.get(nodeId);
    if (known === undefined) return;
    known.pulls.set(transferId, pull);
    const view = known.transfers.get(transferId);
    if (view === undefined) return;
    const transfer = { ...view, pull };
    known.transfers.set(transferId, transfer);
    this.#tell({ type: "transfer", transfer });
  }

  sessions(nodeId: string, activities: readonly SessionActivity[]): void {
    if (this.#nodes.has(nodeId)) this.#sessions.replace(nodeId, activities);
  }

  session(nodeId: string, activity: SessionActivity): void {
    if (this.#nodes.has(nodeId)) this.#sessions.changed(nodeId, activity);
  }

  ended(nodeId: string, sessionId: string, outcome: string): void {
    this.#sessions.ended(nodeId, sessionId, outcome);
  }

  /** A word of the node's clock; when it was set, all that has its times is told anew. */
  #heard(known: Known, atUnix: number): void {
    const change = known.clock.heard(atUnix * 1000, this.#clock());
    if (change === 0) return;
    const { nodeId } = known.status;
    known.samples = known.samples.map((sample) => ({ ...sample, at: sample.at + change }));
    for (const [id, row] of known.transfers) {
      known.transfers.set(id, { ...row, startedAt: row.startedAt + change });
    }
    this.#events = this.#events.map((event) =>
      event.nodeId === nodeId ? { ...event, at: event.at + change } : event,
    );
    this.#events.sort((one, other) => one.at - other.at);
    known.view = nodeView(known.status, known.node, known.reach, known.clock.milliseconds);
    this.#tell(this.message());
  }

  #tellAll(known: Known): void {
    const { nodeId } = known.status;
    this.#tell({
      type: "history",
      node: { ...known.view, samples: [...known.samples] },
      events: this.#events.filter((event) => event.nodeId === nodeId),
      transfers: [...known.transfers.values()],
    });
  }

  #refresh(nodeId: string): void {
    const known = this.#nodes.get(nodeId);
    if (known === undefined) return;
    const { status, node, reach, clock } = known;
    const plain = nodeView(status, node, reach, clock.milliseconds);
    const latest = known.samples.at(-1);
    // A word of the fleet is no word of the node: its load stays that of its latest second.
    const stale = latest !== undefined && latest.at > reach.heardAt;
    known.view = stale ? withLoadOf(plain, latest) : plain;
    this.#tell({ type: "node", node: known.view });
  }

  #eventView(known: Known, event: NodeEvent): EventView {
    const boot = known.node?.card.bootId ?? "";
    return eventView(event, known.status.nodeId, boot, known.clock.milliseconds);
  }

  /** Whether the event was not known yet. */
  #keepEvent(event: EventView): boolean {
    if (this.#eventKeys.has(event.key)) return false;
    this.#eventKeys.add(event.key);
    const place = this.#events.findLastIndex((earlier) => earlier.at <= event.at) + 1;
    this.#events.splice(place, 0, event);
    if (this.#events.length > LIMITS.events) {
      const dropped = this.#events.shift();
      if (dropped !== undefined) this.#eventKeys.delete(dropped.key);
    }
    return true;
  }

  #keepTransfer(known: Known, transfer: Transfer): TransferView {
    const pull = known.pulls.get(transfer.transferId) ?? null;
    const view = transferView(transfer, known.status.nodeId, known.clock.milliseconds, pull);
    known.transfers.set(view.transferId, view);
    if (known.transfers.size > LIMITS.transfers) {
      const [oldest] = known.transfers.keys();
      if (oldest !== undefined) {
        known.transfers.delete(oldest);
        known.pulls.delete(oldest);
      }
    }
    return view;
  }
}

function isGone(status: NodeStatus): boolean {
  return status.liveness === "dead" || status.liveness === "left";
}
