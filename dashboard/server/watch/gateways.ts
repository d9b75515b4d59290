/**
 * Which nodes may tell of the fleet, and in which order they are asked: the one
 * that was named, or any of this machine; once a fleet was seen, any node of that
 * fleet. Pure.
 */
export class Gateways {
  /** host:port; empty for any node of this machine. */
  readonly #named: string;
  #local: readonly string[] = [];
  #latest = "";
  #lost = "";
  #fleetName: string | undefined;

  constructor(named: string) {
    this.#named = named;
  }

  /** The node that answers, or answered last, host:port; before any did, the one that was named. */
  get latest(): string {
    return this.#latest || this.#named;
  }

  /** What is waited for while no node answers, as the end of a sentence. */
  get waitingFor(): string {
    if (this.#fleetName !== undefined) return `a node of the fleet “${this.#fleetName}”`;
    return this.#named === "" ? "a node of this machine" : `a node at ${this.#named}`;
  }

  /** Nodes that run on this machine now, host:port. Answers whether they changed. */
  locals(addresses: readonly string[]): boolean {
    const changed = addresses.join() !== this.#local.join();
    this.#local = [...addresses];
    return changed;
  }

  /** Addresses to ask, best first; `living` are those of the fleet's nodes. */
  candidates(living: readonly string[]): string[] {
    const known = new Set([this.#latest, this.#named, ...living]);
    // A named node is not replaced by whatever runs here, but by its own fleet's nodes.
    if (this.#named === "" || this.#fleetName !== undefined) {
      for (const address of this.#local) known.add(address);
    }
    if (known.delete(this.#lost)) known.add(this.#lost);
    known.delete("");
    return [...known];
  }

  /** Whether a node of the fleet `fleetName` at `address` may tell of the fleet. */
  accepts(address: string, fleetName: string): boolean {
    return (
      address === this.#named || this.#fleetName === undefined || this.#fleetName === fleetName
    );
  }

  answered(address: string, fleetName: string): void {
    this.#latest = address;
    this.#fleetName = fleetName;
  }

  /** The node that answered does no longer: the others are asked first. */
  lost(address: string): void {
    this.#lost = address;
  }
}
