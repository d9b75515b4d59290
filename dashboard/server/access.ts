/**
 * As whom nodes are called: in plain text, or as a member of their fleet. The program
 * that started this one says it, and says it again when certificates are renewed.
 */

import { Client, type ClientOptions, type TlsOptions } from "@kakeya/runtime";

/** What is said of a node of this machine. */
interface OwnNode {
  /** Which of the memberships it is called by; empty for plain text. */
  membership: string;
  /** Shows it that its owner calls; empty for none. */
  ownerKey: string;
  ownerName: string;
}

export interface ToldAccess {
  memberships: Record<string, TlsOptions>;
  /** By address, host:port. */
  nodes: Record<string, OwnNode>;
  /** By which membership the node that was named is called; empty for plain text. */
  named: string;
}

const NOBODY: ToldAccess = { memberships: {}, nodes: {}, named: "" };

export class Access {
  #told = NOBODY;
  readonly #memberships = new Map<string, TlsOptions>();
  #gateway = "";
  #know = (): void => undefined;
  /** Settles once anything was told. */
  readonly known = new Promise<void>((resolve) => (this.#know = resolve));

  tell(told: ToldAccess): void {
    this.#told = told;
    for (const [name, tls] of Object.entries(told.memberships)) this.#memberships.set(name, tls);
    this.#know();
  }

  /** The fleet is seen through this node: its other nodes are called as it is. */
  through(address: string): void {
    this.#gateway = address;
  }

  /** A client of the node at host:port. */
  client(address: string, options: ClientOptions = {}): Client {
    const own = this.#told.nodes[address];
    const name = this.#membership(address);
    const tls = name === "" ? {} : { tls: () => this.#memberships.get(name) ?? {} };
    const owner =
      own === undefined || own.ownerKey === ""
        ? {}
        : { owner: { key: own.ownerKey, serverName: own.ownerName } };
    return new Client(address, { ...options, ...tls, ...owner });
  }

  #membership(address: string): string {
    const { nodes, named } = this.#told;
    return (nodes[address] ?? nodes[this.#gateway])?.membership ?? named;
  }
}
