/** The nodes that a client can turn to, whichever of them answers. */

import { LinkedAbort } from "./cancellation.js";
import type { Connection } from "./connection.js";
import { KakeyaError } from "./errors.js";
import { Fleet } from "./fleet.js";
import type { NodeStatus } from "./values/watch.js";
import type { Ways } from "./ways.js";

const LOOK_SECONDS = 2;

/** Connections of one client, by address, and the fleet as it was last seen. */
export class Roster {
  readonly #connections = new Map<string, Connection>();
  #seen: readonly NodeStatus[] = [];

  /** `connect` makes the connection to an address. */
  constructor(
    readonly home: Connection,
    readonly connect: (address: string) => Connection,
    readonly ways: Ways,
  ) {
    this.#connections.set(home.address, home);
  }

  /** The one connection to `address`; throws UsageError for what is no address. */
  connection(address: string): Connection {
    let connection = this.#connections.get(address);
    if (connection === undefined) {
      connection = this.connect(address);
      this.#connections.set(address, connection);
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
    for (const address of this.#addresses(lostAddress)) {
      const look = new LinkedAbort(signal);
      const timer = setTimeout(() => look.abort(), LOOK_SECONDS * 1000);
      try {
        this.#seen = await new Fleet(this.connection(address)).nodes({ signal: look.signal });
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

  #addresses(lostAddress: string): readonly string[] {
    const seen = this.#seen.filter((node) => node.liveness !== "left");
    const told = seen.map((node) => this.ways.to(node)).filter(Boolean);
    const all = new Set([...this.#connections.keys(), ...told]);
    return all.delete(lostAddress) ? [...all, lostAddress] : [...all];
  }

  /** Closes all connections. */
  close(): void {
    for (const connection of this.#connections.values()) {
      connection.close();
    }
  }
}
