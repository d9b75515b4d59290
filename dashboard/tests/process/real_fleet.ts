import { cp, mkdir, mkdtemp, rm, symlink } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { Child } from "./child";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

/** The command line. */
export const FLEET = join(ROOT, ".venv/bin/fleet");

/** Where `make test` has the process that all suites' agents are copies of; tests/warm. */
const COPIES = process.env["TESTS_WARM_FOLDER"] !== undefined;

/** The folder of the shipped model. */
export const TINY = join(ROOT, "engine/shipped/tiny");

const CACHE = join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "kakeya");

/**
 * What this user's nodes compiled, and found out about models' exactness, once: seconds of a
 * processor for each cache without it. Their names are digests of all that they depend on. By the
 * folder's name in a node's cache, and in this user's, where tests keep records of their own.
 */
const FOUND_ONCE = { compiled: "compiled", exactness: "exactness-of-tests" };

export interface Agent {
  child: Child;
  name: string;
  nodeId: string;
  /** host:port. */
  address: string;
}

/** Real agents of this machine, with a state directory of their own. */
export class RealFleet {
  readonly agents = new Map<string, Agent>();
  readonly #home: string;

  private constructor(home: string) {
    this.#home = home;
  }

  static async create(): Promise<RealFleet> {
    return new RealFleet(await mkdtemp(join(tmpdir(), "fleet-")));
  }

  /** What commands of this fleet need to find it, and nothing of the person's own. */
  get environment(): NodeJS.ProcessEnv {
    return this.#environment("cache");
  }

  /** A copy of a folder, by another name. */
  async copied(folder: string, name: string): Promise<string> {
    const copy = join(this.#home, name);
    await cp(folder, copy, { recursive: true });
    return copy;
  }

  /** A cache with nothing in it but what any node finds again. */
  async #own(cache: string): Promise<void> {
    const own = join(this.#home, cache, "kakeya");
    await mkdir(own, { recursive: true });
    for (const [name, kept] of Object.entries(FOUND_ONCE)) {
      await mkdir(join(CACHE, kept), { recursive: true });
      await symlink(join(CACHE, kept), join(own, name)).catch((error: NodeJS.ErrnoException) => {
        // Of a node that starts again.
        if (error.code !== "EEXIST") throw error;
      });
    }
  }

  /** As on machines of their own, nodes have nothing on their disk that others brought there. */
  #environment(cache: string): NodeJS.ProcessEnv {
    return {
      XDG_STATE_HOME: join(this.#home, "state"),
      XDG_CONFIG_HOME: join(this.#home, "config"),
      XDG_CACHE_HOME: join(this.#home, cache),
      HF_HUB_OFFLINE: "1",
      OMP_NUM_THREADS: "1",
      KAKEYA_LINKS: "grpc",
    };
  }

  /** Starts an agent that serves `served`, such as "verifier=tiny"; the first is every other's peer. */
  async join(name: string, ...served: string[]): Promise<Agent> {
    const [first] = this.agents.values();
    const cache = `cache of ${name}`;
    await this.#own(cache);
    const environment = this.#environment(cache);
    const child = new Child(
      COPIES ? join(ROOT, ".venv/bin/python") : FLEET,
      [
        ...(COPIES ? ["-m", "tests.warm.beside", JSON.stringify(environment)] : []),
        ...["join", "--json", "--no-mdns", "--name", name, "--bind", "127.0.0.1:0"],
        ...served.flatMap((one) => ["--serve", one]),
        ...(first === undefined ? [] : ["--peer", first.address]),
      ],
      COPIES ? {} : environment,
      ROOT,
    );
    const ready = await child.line("ready");
    const agent = {
      child,
      name,
      nodeId: String(ready["node_id"]),
      address: String(ready["address"]),
    };
    this.agents.set(name, agent);
    return agent;
  }

  async end(): Promise<void> {
    await Promise.all([...this.agents.values()].map(({ child }) => child.end("SIGTERM")));
    await rm(this.#home, { recursive: true, force: true });
  }
}
