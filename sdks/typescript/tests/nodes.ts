/** Scripted nodes and clients of one test file. */

import { afterAll, afterEach, beforeAll, beforeEach } from "vitest";

import { Client, type ClientOptions } from "../src/index.js";
import { ScriptedNode } from "./scripted-node.js";

/** Processes of files before, which run in the same worker: they end with it, as their input does. */
const idle: ScriptedNode[] = [];

/** Scripted nodes, each a process, fresh for each test, and clients that are closed after it. */
export class Nodes {
  #started: ScriptedNode[] = [];
  #clients: Client[] = [];

  constructor(count: 1 | 2) {
    beforeAll(async () => {
      this.#started = await Promise.all(
        Array.from({ length: count }, () => idle.pop() ?? ScriptedNode.start()),
      );
    });
    beforeEach(() => Promise.all(this.#started.map((each) => each.reset())));
    afterEach(async () => {
      await Promise.all(this.#clients.splice(0).map((client) => client.close()));
    });
    afterAll(() => void idle.push(...this.#started.splice(0)));
  }

  get node(): ScriptedNode {
    return this.#at(0);
  }

  get other(): ScriptedNode {
    return this.#at(1);
  }

  client(options: ClientOptions = {}): Client {
    const client = new Client(this.node.address, options);
    this.#clients.push(client);
    return client;
  }

  /** Both nodes know each other, and both serve the model; the other one as `offers` say. */
  async join(offers: readonly object[] = [{}]): Promise<void> {
    const card = (node: ScriptedNode, id: string, offered: readonly object[] = [{}]) => ({
      card: {
        node_id: id,
        name: id,
        protocol_max: 1,
        addresses: [node.address],
        models: offered.map((offer) => ({
          model_id: "tiny",
          role: "ROLE_VERIFIER",
          weights_digest: "cd".repeat(32),
          ...offer,
        })),
      },
      liveness: "LIVENESS_ALIVE",
    });
    const nodes = [card(this.node, "aa"), card(this.other, "bb", offers)];
    const fleet_events = [{ snapshot: { fleet_name: "home", nodes } }];
    await Promise.all(this.#started.map((each) => each.set({ fleet_events })));
  }

  #at(index: number): ScriptedNode {
    const found = this.#started[index];
    if (found === undefined) {
      throw new Error(`node ${index + 1} of ${this.#started.length} has not started`);
    }
    return found;
  }
}
