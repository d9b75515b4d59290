/** What comes to nodes' disks and goes from them, as pages ask. */

import {
  TransportError,
  type ModelPull,
  type PullProgress,
  type PullSource,
} from "@kakeya/runtime";

import type { PullAnswer, PullView, RemoveAnswer } from "../../shared/messages";
import { Fields } from "../http/fields";
import type { NodeClient } from "../node_client";
import { problemOf } from "../problem";

/** Longest name of a model, in characters, as a node takes it. */
const NAME_LIMIT = 1024;

/** Hears how the pull stands that the node calls `transferId`. */
type Hear = (nodeId: string, transferId: string, pull: PullView) => void;

/**
 * Pulls that pages asked for. Each is followed to its end by this process, once for all pages: a
 * transfer tells how much has come, the pull itself whence, and why it failed. Nodes refuse more
 * than a few at a time, so that few are followed.
 */
export class Pulls {
  readonly #client: NodeClient;
  readonly #hear: Hear;
  /** Nodes and models of those that are asked for or followed. */
  readonly #followed = new Set<string>();

  constructor(client: NodeClient, hear: Hear) {
    this.#client = client;
    this.#hear = hear;
  }

  /**
   * Has a node bring a model to its disk (`DiskQuestion`), from all that have it, and answers once
   * that has begun. It goes on without the page and without this process. Throws Refused and what
   * the SDK throws.
   */
  async begin(body: Record<string, unknown>): Promise<PullAnswer> {
    const { model, nodeId } = askedOf(body);
    const key = JSON.stringify([nodeId, model]);
    if (this.#followed.has(key)) return { wasThere: false };
    const client = this.#client(nodeId);
    const leave = async (): Promise<void> => {
      this.#followed.delete(key);
      await client.close();
    };
    this.#followed.add(key);
    const pull = client.fleet.pullModel(model);
    const steps = pull[Symbol.asyncIterator]();
    let first: IteratorResult<PullProgress, undefined>;
    try {
      first = await steps.next();
    } catch (error) {
      await leave();
      throw error;
    }
    if (first.done === true) {
      await leave();
      return { wasThere: true };
    }
    // What escapes from it ends the process, as what escapes from a route does.
    void this.#follow(nodeId, pull, first.value, steps).finally(leave);
    return { wasThere: false };
  }

  async #follow(
    nodeId: string,
    pull: ModelPull,
    first: PullProgress,
    steps: AsyncIterator<PullProgress, undefined>,
  ): Promise<void> {
    let latest = first;
    const tell = (sources: readonly PullSource[], problem: PullView["problem"]): void => {
      const transferId = latest.transfer?.transferId;
      if (transferId !== undefined) {
        this.#hear(nodeId, transferId, { sources: [...sources], problem });
      }
    };
    try {
      tell(first.sources, null);
      for (let next = await steps.next(); next.done !== true; next = await steps.next()) {
        latest = next.value;
        tell(latest.sources, null);
      }
      tell(pull.pulled?.sources ?? latest.sources, null);
    } catch (error) {
      // The connection's end says nothing of the pull, whose transfer goes on telling.
      if (error instanceof TransportError) return;
      const known = problemOf(error);
      if (known === null) throw error;
      tell(latest.sources, known.problem);
    }
  }
}

/** Removes from a node's disk what a pull brought (`DiskQuestion`). Throws Refused and what the SDK throws. */
export async function removeModel(
  body: Record<string, unknown>,
  client: NodeClient,
  signal: AbortSignal,
): Promise<RemoveAnswer> {
  const { model, nodeId } = askedOf(body);
  const asked = client(nodeId);
  try {
    const { byteCount } = await asked.fleet.removeModel(model, { signal });
    return { byteCount };
  } finally {
    await asked.close();
  }
}

function askedOf(body: Record<string, unknown>): { model: string; nodeId: string } {
  const fields = new Fields(body);
  return { model: fields.text("model", NAME_LIMIT), nodeId: fields.text("nodeId", 64) };
}
