/** Real agents on this machine, each a process with a state of its own. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Client } from "../src/index.js";
import { Child } from "./child.js";

/** One `fleet join`. */
export class Agent {
  readonly #child: Child;
  readonly #home: string;
  #slower: Child | undefined;
  address = "";

  private constructor(name: string, words: readonly string[]) {
    this.#home = mkdtempSync(join(tmpdir(), `kakeya-${name}-`));
    const args = ["join", "--json", "--no-mdns", "--name", name, "--state", this.#home, ...words];
    this.#child = new Child("fleet", args, {
      HF_HUB_OFFLINE: "1",
      KAKEYA_LINKS: "grpc",
      // At no port that an agent of another test may have next.
      KAKEYA_BIND: "127.0.0.1:0",
      KAKEYA_HTTP_BIND: "127.0.0.1:0",
      XDG_STATE_HOME: this.#home,
      XDG_CONFIG_HOME: this.#home,
    });
  }

  /** Waits until the agent is ready. */
  static async start(name: string, ...words: string[]): Promise<Agent> {
    const agent = new Agent(name, words);
    for (;;) {
      const line = await agent.#child.read();
      if (line["event"] === "ready") {
        agent.address = String(line["address"]);
        return agent;
      }
      if ("error" in line) {
        throw new Error(JSON.stringify(line));
      }
    }
  }

  /** Works slowly from now on: what is to strike amid an answer does, however fast this machine is. */
  async slow(): Promise<void> {
    this.#slower = await this.#child.slowed();
  }

  /** Dies without a word, as a machine that loses its power. */
  async kill(): Promise<void> {
    await this.#child.end("SIGKILL");
    await this.#slower?.end();
    rmSync(this.#home, { recursive: true, force: true });
  }
}

/** Waits until the client's node sees so many live nodes that serve a model. */
export async function fleetOf(client: Client, count: number, seconds = 30): Promise<void> {
  const signal = AbortSignal.timeout(seconds * 1000);
  const live = new Set<string>();
  for await (const event of client.fleet.watch({ signal })) {
    const nodes =
      event.type === "snapshot" ? event.nodes : event.type === "changed" ? [event.node] : [];
    for (const node of nodes) {
      if (node.liveness === "alive" && node.models.length > 0) {
        live.add(node.nodeId);
      }
    }
    if (live.size >= count) {
      return;
    }
  }
}
