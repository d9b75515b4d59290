import { KakeyaError, type Client } from "@kakeya/runtime";

import type { Access } from "../access";
import type { FleetState } from "../state/fleet_state";
import { Backoff } from "./backoff";
import { IdleTimeout } from "./idle_timeout";

/** Seconds of samples that a page begins with. */
const HISTORY_SECONDS = 900;
/** Blocks of each session that a page begins with. */
const BLOCK_COUNT = 256;
/** Milliseconds of silence after which a node, that tells a sample a second, is not reached. */
const SILENCE_MS = 5000;
/** Why one stream is left when the other of its node ended. */
const ENDED = "It ended its stream.";
const RETRY_MS = { first: 250, most: 5000 };

/** Follows one node's activity and its sessions' until it is ended. */
export class NodeWatch {
  readonly #nodeId: string;
  readonly #state: FleetState;
  readonly #access: Access;
  readonly #ended = new AbortController();
  readonly #unreached: () => void;
  readonly #backoff = new Backoff(RETRY_MS.first, RETRY_MS.most);
  #addresses: readonly string[];

  /** `unreached` is called with every attempt that failed. */
  constructor(
    nodeId: string,
    addresses: readonly string[],
    state: FleetState,
    access: Access,
    unreached: () => void,
  ) {
    this.#access = access;
    this.#unreached = unreached;
    this.#nodeId = nodeId;
    this.#addresses = addresses;
    this.#state = state;
  }

  /** host:port, best first; the next attempt, which others bring on, heeds them. */
  set addresses(addresses: readonly string[]) {
    const changed = addresses.join() !== this.#addresses.join();
    this.#addresses = addresses;
    if (changed) this.#backoff.hurry();
  }

  end(): void {
    this.#ended.abort();
  }

  /** Runs until `end`: every stream that breaks is opened again. */
  async run(): Promise<void> {
    for (let attempt = 0; !this.#ended.signal.aborted; attempt += 1) {
      const address = this.#addresses[attempt % Math.max(1, this.#addresses.length)];
      const reason =
        address === undefined
          ? "Its card has no address."
          : await this.#follow(address, () => {
              this.#backoff.succeeded();
              // The next attempt begins with the address that answered.
              attempt -= 1;
            });
      if (this.#ended.signal.aborted) return;
      this.#state.unreached(this.#nodeId, reason);
      this.#unreached();
      await this.#backoff.wait(this.#ended.signal);
    }
  }

  /** Follows both streams at `address` until one breaks; answers why. */
  async #follow(address: string, answered: () => void): Promise<string> {
    // A connection each: where a node that leaves ends one of several streams of a connection, and
    // another is cancelled then, Node 20's HTTP/2 now and then writes empty frames of the first
    // for ever, without a turn of the event loop (once in 200 such ends, measured).
    const timeouts = { connect: 2 };
    const client = this.#access.client(address, { timeouts });
    const ofSessions = this.#access.client(address, { timeouts });
    const silence = new IdleTimeout(SILENCE_MS);
    const broken = new AbortController();
    const signal = AbortSignal.any([this.#ended.signal, silence.signal, broken.signal]);
    try {
      await Promise.all(
        [
          this.#followNode(client, signal, () => silence.heard(), answered),
          this.#followSessions(ofSessions, signal),
        ].map((stream) => stream.finally(() => broken.abort(ENDED))),
      );
      return ENDED;
    } catch (error) {
      if (error === ENDED) return ENDED;
      if (silence.signal.aborted) return `${address} is silent for ${SILENCE_MS / 1000} s.`;
      if (error instanceof WrongNode || error instanceof KakeyaError) return error.message;
      if (this.#ended.signal.aborted) return "";
      throw error;
    } finally {
      silence.end();
      await Promise.all([client.close(), ofSessions.close()]);
    }
  }

  async #followNode(
    client: Client,
    signal: AbortSignal,
    heard: () => void,
    answered: () => void,
  ): Promise<void> {
    const [state, nodeId] = [this.#state, this.#nodeId];
    for await (const told of client.fleet.watchNode({ historySeconds: HISTORY_SECONDS, signal })) {
      heard();
      switch (told.type) {
        case "history": {
          const { card } = told.node;
          if (card.nodeId !== nodeId) throw new WrongNode(card.name);
          answered();
          state.history(nodeId, told);
          break;
        }
        case "node":
          state.node(nodeId, told.node);
          break;
        case "sample":
          state.sample(nodeId, told.sample);
          break;
        case "event":
          state.event(nodeId, told.event);
          break;
        case "transfer":
          state.transfer(nodeId, told.transfer);
          break;
      }
    }
  }

  async #followSessions(client: Client, signal: AbortSignal): Promise<void> {
    const [state, nodeId] = [this.#state, this.#nodeId];
    for await (const told of client.watchSessions({ blockCount: BLOCK_COUNT, signal })) {
      if (told.type === "snapshot") state.sessions(nodeId, told.sessions);
      else if (told.type === "changed") state.session(nodeId, told.activity);
      else state.ended(nodeId, told.sessionId, told.outcome);
    }
  }
}

/** Two fleets share an address, or a machine was set up anew. */
class WrongNode extends Error {
  constructor(name: string) {
    super(`Another node answers at its address: ${name}.`);
  }
}
