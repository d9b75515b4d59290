import { KakeyaError, type FleetEvent, type NodeStatus } from "@kakeya/runtime";

import type { Access } from "../access";
import type { FleetState } from "../state/fleet_state";
import { Backoff } from "./backoff";
import { Gateways } from "./gateways";
import { NodeWatch } from "./node_watch";

/** Asking costs a connection that is refused: a node that comes is found within the longer one. */
const RETRY_MS = { first: 250, most: 2000 };
/** Milliseconds after which a stream that ended counts as one that was good. */
const STEADY_MS = 1000;

/**
 * Follows the fleet at a gateway, and every node that lives at its own address.
 * When the gateway is lost, another node that is known takes its place.
 */
export class FleetWatch {
  readonly #gateways: Gateways;
  readonly #state: FleetState;
  readonly #access: Access;
  readonly #ended = new AbortController();
  readonly #statuses = new Map<string, NodeStatus>();
  readonly #watches = new Map<string, NodeWatch>();
  readonly #running = new Set<Promise<void>>();
  readonly #backoff = new Backoff(RETRY_MS.first, RETRY_MS.most);
  #stream: AbortController | undefined;

  /** `named`: the node that is asked first, host:port; empty for any of this machine. */
  constructor(named: string, state: FleetState, access: Access) {
    this.#access = access;
    this.#gateways = new Gateways(named);
    this.#state = state;
  }

  /** The node through which the fleet is seen, host:port; empty while none is known. */
  get gateway(): string {
    return this.#gateways.latest;
  }

  /** The nodes that run on this machine now, host:port; others than before are asked at once. */
  set localNodes(addresses: readonly string[]) {
    if (this.#gateways.locals(addresses)) this.#backoff.hurry();
  }

  /** Runs until `end`. */
  async run(): Promise<void> {
    this.#wait("");
    while (!this.#ended.signal.aborted) {
      const began = Date.now();
      const fault = await this.#followOne();
      if (this.#ended.signal.aborted) return;
      if (fault === "") {
        this.#backoff.succeeded();
        // The next takes over at once, unless streams end as soon as they begin.
        if (Date.now() - began > STEADY_MS) continue;
      } else {
        this.#wait(fault);
      }
      await this.#backoff.wait(this.#ended.signal);
    }
  }

  async end(): Promise<void> {
    this.#ended.abort();
    for (const watch of this.#watches.values()) watch.end();
    await Promise.all(this.#running);
  }

  #wait(fault: string): void {
    this.#state.waits(this.#gateways.waitingFor, fault);
  }

  /** Follows the first node that answers until it is lost; answers why none did, if none did. */
  async #followOne(): Promise<string> {
    let fault = "";
    const living = [...this.#statuses.values()].filter(
      (status) => status.liveness === "alive" || status.liveness === "suspect",
    );
    for (const address of this.#gateways.candidates(living.flatMap(addressesOf))) {
      const said = await this.#follow(address);
      if (said === "" || this.#ended.signal.aborted) return "";
      // The first that fails is the one that was named, or that answered until now.
      fault ||= said;
    }
    return fault || "No node runs on this machine.";
  }

  /** Follows the fleet at `address` until that is lost; empty if it answered, else why not. */
  async #follow(address: string): Promise<string> {
    const client = this.#access.client(address, { timeouts: { connect: 2 } });
    const stream = new AbortController();
    const signal = AbortSignal.any([this.#ended.signal, stream.signal]);
    let answered = false;
    try {
      for await (const told of client.fleet.watch({ signal })) {
        if (told.type === "snapshot") {
          const { fleetName } = told;
          if (!this.#gateways.accepts(address, fleetName)) {
            return `${address} is of another fleet, “${fleetName}”.`;
          }
          answered = true;
          this.#stream = stream;
          this.#gateways.answered(address, fleetName);
          this.#access.through(address);
          this.#state.watched(address);
        }
        this.#heed(told);
      }
      return answered ? "" : `${address} ended its stream.`;
    } catch (error) {
      if (signal.aborted || (answered && error instanceof KakeyaError)) return "";
      if (error instanceof KakeyaError) return error.message;
      throw error;
    } finally {
      if (answered) this.#gateways.lost(address);
      await client.close();
    }
  }

  #heed(told: FleetEvent): void {
    switch (told.type) {
      case "snapshot": {
        const present = new Set(told.nodes.map(({ nodeId }) => nodeId));
        for (const nodeId of this.#statuses.keys()) if (!present.has(nodeId)) this.#forget(nodeId);
        this.#state.snapshot(told);
        for (const status of told.nodes) this.#watch(status);
        break;
      }
      case "changed":
        this.#state.changed(told.node);
        this.#watch(told.node);
        break;
      case "removed":
        this.#state.removed(told.nodeId);
        this.#forget(told.nodeId);
        break;
    }
  }

  /** Follows the node itself while it may live. */
  #watch(status: NodeStatus): void {
    this.#statuses.set(status.nodeId, status);
    const known = this.#watches.get(status.nodeId);
    if (status.liveness === "dead" || status.liveness === "left") {
      known?.end();
      this.#watches.delete(status.nodeId);
      const word = status.liveness === "dead" ? "The fleet holds it for dead." : "It left.";
      this.#state.unreached(status.nodeId, word);
      return;
    }
    // Only the node's id is known: its card follows.
    const addresses = status.isSelf ? [this.gateway, ...addressesOf(status)] : addressesOf(status);
    if (addresses.length === 0) return;
    if (known !== undefined) {
      known.addresses = addresses;
      return;
    }
    const watch = new NodeWatch(status.nodeId, addresses, this.#state, this.#access, () => {
      // A gateway that tells nothing of itself tells nothing of the fleet.
      if (this.#statuses.get(status.nodeId)?.isSelf) this.#stream?.abort();
    });
    this.#watches.set(status.nodeId, watch);
    const running = watch.run().finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  #forget(nodeId: string): void {
    this.#statuses.delete(nodeId);
    this.#watches.get(nodeId)?.end();
    this.#watches.delete(nodeId);
  }
}

function addressesOf(status: NodeStatus): string[] {
  const { card, address } = status;
  return [...new Set([address, ...(card?.addresses ?? [])])].filter((known) => known !== "");
}
