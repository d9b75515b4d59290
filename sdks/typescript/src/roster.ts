/** The nodes that a client can turn to, whichever of them answers. */

import { LinkedAbort } from "./cancellation.js";
import type { Connection } from "./connection.js";
import { KakeyaError } from "./errors.js";
import { Fleet } from "./fleet.js";
import type { NodeStatus } from "./values/watch.js";
import type { Ways } from "./ways.js";

const LOOK_SECONDS = 2;
/** In no address. */
const SEPARATOR = " ";

function placeOf(address: string, nodeId: string): string {
  return `${address}${SEPARATOR}${nodeId}`;
}

/** Connections of one client, by address, and the fleet as it was last seen. */
export class Roster {
  readonly #connections = new Map<string, Connection>();
  #seen: readonly NodeStatus[] = [];

  /** `connect` makes the connection to an address at which a node, by its id, is awaited. */
  constructor(
    readonly home: Connection,
    readonly connect: (address: string, nodeId: string) => Connection,
    readonly ways: Ways,
  ) {}

  /**
   * The one connection to the node at `address`; an empty id awaits whoever is there. At home
   * that is who the client was told to ask. Throws UsageError for what is no address, or no id.
   */
  connection(address: string, nodeId: string): Connection {
    if (address === this.home.address) return this.home;
    const place = placeOf(address, nodeId);
    let connection = this.#connections.get(place);
    if (connection === undefined) {
      connection = this.connect(address, nodeId);
      this.#connections.set(place, connection);
    }
    return connection;
  }

  /** Looks at the fleet, so that `nodes` knows whom to ask when home is gone. */
  async remember(signal?: AbortSignal): Promise<void> {
    this.#seen = await new Fleet(this.home).nodes({ signal });
  }

  /**
   * The fleet as the first node that answers sees it, else as it was last seen.
   *
   * The node at `lostAddress` is asked last: it may only be leaving. A node that
   * keeps silent for two seconds is passed over. Throws the error of the first that
   * was asked when none answers and nothing was ever seen.
   */
  async nodes(lostAddress: string, signal?: AbortSignal): Promise<readonly NodeStatus[]> {
    let first: unknown;
    for (const [address, nodeId] of this.#places(lostAddress)) {
      const look = new LinkedAbort(signal);
      const timer = setTimeout(() => look.abort(), LOOK_SECONDS * 1000);
      try {
        this.#seen = await new Fleet(this.connection(address, nodeId)).nodes({
          signal: look.signal,
        });
        return this.#seen;
      } catch (error) {
        signal?.throwIfAborted();
        if (!(error instanceof KakeyaError) && !look.signal.aborted) {
          throw error;
        }
        first ??= error;
      } finally {
        clearTimeout(timer);
        look.unlink();
      }
    }
    if (this.#seen.length === 0) {
      throw first;
    }
    return this.#seen;
  }

  /** Addresses, and which nodes are awaited there. */
  #places(lostAddress: string): readonly [address: string, nodeId: string][] {
    const places = new Map([[this.home.address, ""]]);
    for (const place of this.#connections.keys()) {
      const [address = "", nodeId = ""] = place.split(SEPARATOR);
      places.set(address, nodeId);
    }
    for (const node of this.#seen) {
      const address = node.liveness === "left" ? "" : this.ways.to(node);
      if (address !== "" && !places.has(address)) places.set(address, node.nodeId);
    }
    const isLost = ([address]: [string, string]): number => Number(address === lostAddress);
    return [...places].sort((one, other) => isLost(one) - isLost(other));
  }

  /** Closes all connections. */
  close(): void {
    for (const connection of [this.home, ...this.#connections.values()]) {
      connection.close();
    }
  }
}
