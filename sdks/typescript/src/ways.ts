/**
 * At which address a client calls another node than its own, and whether it may.
 *
 * Tokens go to members of the fleet alone, where it has an authority: by TLS, in which a node
 * proves that it is one, and never in plain text because an address was told.
 */

import { showsKeyAlone, type Credentials } from "./credentials.js";
import type { ModelServedElsewhere } from "./errors.js";
import type { NodeStatus } from "./values/watch.js";

/** Where clients with a key call a node, host:port; empty where they cannot. */
export function applicationsAddress({ address, card }: NodeStatus): string {
  if (!card?.applicationsPort || !address) return "";
  return `${address.slice(0, address.lastIndexOf(":"))}:${card.applicationsPort}`;
}

/** Those of a client with these credentials. */
export class Ways {
  readonly #hasTls: boolean;
  readonly #showsKeyAlone: boolean;

  constructor(credentials: Credentials) {
    this.#hasTls = credentials.tls !== undefined;
    this.#showsKeyAlone = showsKeyAlone(credentials);
  }

  /** host:port of a node that was told of; empty when this client has no way to it. */
  to(node: NodeStatus): string {
    const isMember = !!node.card?.certificate;
    return this.#chosen(node.address, applicationsAddress(node), isMember);
  }

  /** The same of the node that serves the model. */
  namedBy(error: ModelServedElsewhere): string {
    const isMember = !!error.metadata["encrypted"];
    return this.#chosen(error.address, error.applicationsAddress, isMember);
  }

  #chosen(address: string, forKeys: string, isMember: boolean): string {
    if (!isMember) return address;
    if (!this.#hasTls) return "";
    return this.#showsKeyAlone ? forKeys : address;
  }
}
