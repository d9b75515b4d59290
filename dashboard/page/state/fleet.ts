/**
 * The fleet as the page holds it: signals that `connect` keeps up to date from
 * the process's stream, and that views read.
 *
 * - `nodes`, `sessions`, `events`, `transfers`: all of them; for sums and lists
 *   that need every row. They change whenever one row does; rows that did not
 *   change stay the same objects.
 * - `nodeIds`, `sessionKeys`: change only when rows come, go or swap places. A
 *   list renders one component a key, and that component reads `node(id)` or
 *   `session(key)`, so that a sample of one node renders that node alone.
 */

import { batch, signal, type ReadonlySignal } from "@preact/signals";

import { LIMITS } from "../../shared/limits";
import type {
  EventView,
  FleetView,
  GatewayView,
  Message,
  NodeView,
  SessionView,
  TransferView,
} from "../../shared/messages";
import { SAMPLE_LIMIT, withLoadOf } from "../../shared/sample";
import { appended } from "./bounded";
import { Table } from "./table";

export const BLOCK_LIMIT = 256;
export const TRANSFER_LIMIT = 128;
export const ENDED_LIMIT = 64;

/** Whether the page hears from its process, and the process from the fleet. */
export interface Connection {
  /** lost: the process does not answer; it is tried again. */
  state: "connecting" | "live" | "lost";
  /** Whether the process said anything yet. */
  told: boolean;
  fleetName: string;
  gateway: GatewayView;
  /** This page's clock less the process's, in milliseconds. */
  clockOffset: number;
}

/** A session that ended while the page was open. */
export interface EndedSessionView {
  session: SessionView;
  /** closed, evicted, ... as the SDK names outcomes. */
  outcome: string;
  /** By the process's clock, in milliseconds since 1970. */
  endedAt: number;
}

const nodeTable = new Table<NodeView>(
  (one, other) => one.name.localeCompare(other.name) || one.nodeId.localeCompare(other.nodeId),
);
const sessionTable = new Table<SessionView>(
  (one, other) => one.openedAt - other.openedAt || one.sessionId.localeCompare(other.sessionId),
);
const transferTable = new Table<TransferView>(
  (one, other) => one.startedAt - other.startedAt || one.transferId.localeCompare(other.transferId),
);
const eventList = signal<readonly EventView[]>([]);
const endedList = signal<readonly EndedSessionView[]>([]);
const connectionState = signal<Connection>({
  state: "connecting",
  told: false,
  fleetName: "",
  gateway: { address: "", waitingFor: "", fault: "" },
  clockOffset: 0,
});

/** By name. */
export const nodes: ReadonlySignal<readonly NodeView[]> = nodeTable.all;
export const nodeIds: ReadonlySignal<readonly string[]> = nodeTable.keys;
/** Oldest first. */
export const sessions: ReadonlySignal<readonly SessionView[]> = sessionTable.all;
/** Keys that `sessionKey` makes. */
export const sessionKeys: ReadonlySignal<readonly string[]> = sessionTable.keys;
/** Latest last, at most 512. */
export const events: ReadonlySignal<readonly EventView[]> = eventList;
/** Oldest first, at most 128. */
export const transfers: ReadonlySignal<readonly TransferView[]> = transferTable.all;
/** Sessions that ended while the page was open, latest last, at most 64. */
export const endedSessions: ReadonlySignal<readonly EndedSessionView[]> = endedList;
export const connection: ReadonlySignal<Connection> = connectionState;

/** The node's signal; undefined while it is not known. */
export function node(nodeId: string): ReadonlySignal<NodeView | undefined> {
  return nodeTable.row(nodeId);
}

/** The session's signal by `sessionKey`; undefined when there is none, or it ended. */
export function session(key: string): ReadonlySignal<SessionView | undefined> {
  return sessionTable.row(key);
}

/** Names a session in the fleet: session ids are unique on their node only. */
export function sessionKey(of: { nodeId: string; sessionId: string }): string {
  return `${of.nodeId}/${of.sessionId}`;
}

/** The process's clock now, in milliseconds since 1970: what every time of a view is told by. */
export function fleetNow(): number {
  return Date.now() - connectionState.peek().clockOffset;
}

/**
 * Applies messages in their order, as one change of the signals. Lists of all rows
 * change once it is `settled`: until then more of the same burst follows.
 */
export function apply(messages: readonly Message[], settled = true): void {
  batch(() => {
    for (const message of messages) applyOne(message);
    if (!settled) return;
    nodeTable.publish();
    sessionTable.publish();
    transferTable.publish();
  });
}

/** Says whether the process answers. */
export function setConnectionState(state: Connection["state"]): void {
  if (connectionState.peek().state !== state) {
    connectionState.value = { ...connectionState.peek(), state };
  }
}

function applyOne(message: Message): void {
  switch (message.type) {
    case "fleet":
      replaceFleet(message.fleet, message.now);
      break;
    case "node": {
      const samples = nodeTable.peek(message.node.nodeId)?.samples ?? [];
      nodeTable.set(message.node.nodeId, { ...message.node, samples });
      break;
    }
    case "history":
      nodeTable.set(message.node.nodeId, message.node);
      for (const event of message.events) addEvent(event);
      replaceTransfers(message.node.nodeId, message.transfers);
      break;
    case "removed":
      nodeTable.remove(message.nodeId);
      break;
    case "sample": {
      const known = nodeTable.peek(message.nodeId);
      if (known === undefined) break;
      const samples = appended(known.samples, [message.sample], SAMPLE_LIMIT);
      nodeTable.set(message.nodeId, { ...withLoadOf(known, message.sample), samples });
      break;
    }
    case "event":
      addEvent(message.event);
      break;
    case "transfer":
      addTransfer(message.transfer);
      break;
    case "session": {
      const key = sessionKey(message.session);
      const before = sessionTable.peek(key)?.blocks ?? [];
      const blocks =
        message.blocks.length === 0 ? before : appended(before, message.blocks, BLOCK_LIMIT);
      sessionTable.set(key, { ...message.session, blocks });
      break;
    }
    case "session-ended":
      endSession(message);
      break;
    case "gateway":
      connectionState.value = { ...connectionState.peek(), gateway: message.gateway };
      break;
  }
}

function replaceFleet(fleet: FleetView, now: number): void {
  nodeTable.replace(new Map(fleet.nodes.map((row) => [row.nodeId, row])));
  sessionTable.replace(new Map(fleet.sessions.map((row) => [sessionKey(row), row])));
  transferTable.replace(new Map(fleet.transfers.map((row) => [transferKey(row), row])));
  eventList.value = fleet.events;
  connectionState.value = {
    state: "live",
    told: true,
    fleetName: fleet.fleetName,
    gateway: fleet.gateway,
    clockOffset: Date.now() - now,
  };
}

function addEvent(event: EventView): void {
  const list = eventList.peek();
  if (list.some((known) => known.key === event.key)) return;
  const place = list.findLastIndex((earlier) => earlier.at <= event.at) + 1;
  const before = list.slice(0, place);
  eventList.value = [...before, event, ...list.slice(place)].slice(-LIMITS.events);
}

function replaceTransfers(nodeId: string, rows: readonly TransferView[]): void {
  const others = transferTable.all.peek().filter((row) => row.nodeId !== nodeId);
  transferTable.replace(new Map([...others, ...rows].map((row) => [transferKey(row), row])));
}

function addTransfer(transfer: TransferView): void {
  transferTable.set(transferKey(transfer), transfer);
  const known = transferTable.all.peek();
  const oldest = known.length > TRANSFER_LIMIT ? known[0] : undefined;
  if (oldest !== undefined) transferTable.remove(transferKey(oldest));
}

function endSession(ended: { nodeId: string; sessionId: string; outcome: string }): void {
  const key = sessionKey(ended);
  const row = sessionTable.peek(key);
  if (row === undefined) return;
  sessionTable.remove(key);
  const entry = { session: row, outcome: ended.outcome, endedAt: fleetNow() };
  endedList.value = appended(endedList.peek(), [entry], ENDED_LIMIT);
}

function transferKey(of: TransferView): string {
  return `${of.nodeId}/${of.transferId}`;
}
