import { InvalidArgument, KakeyaError, TransportError } from "@kakeya/runtime";

import type { RightsView } from "../../shared/messages";
import type { Access } from "../access";
import { problemOf } from "../problem";

/** Nodes that are asked at once. */
const AT_ONCE = 8;
/** Milliseconds after which a node that does not answer is left out. */
const PATIENCE_MS = 3000;
/** Milliseconds for which an answer holds: who keeps a fleet changes seldom. */
const HOLDS_MS = 30_000;

interface Answer {
  at: number;
  refusal: RightsView[string];
}

/** Whether this process may change what nodes serve, in each node's own word. */
export class Rights {
  readonly #access: Access;
  readonly #answers = new Map<string, Answer>();

  constructor(access: Access) {
    this.#access = access;
  }

  /** The refusal of each of the nodes, null where it may; those that do not answer are absent. */
  async ask(nodes: readonly { nodeId: string; address: string }[]): Promise<RightsView> {
    const told: RightsView = {};
    const waiting = [...nodes];
    const worker = async (): Promise<void> => {
      for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
        const answer = await this.#answer(next.nodeId, next.address);
        if (answer !== undefined) told[next.nodeId] = answer.refusal;
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    return told;
  }

  async #answer(nodeId: string, address: string): Promise<Answer | undefined> {
    const now = Date.now();
    for (const [known, { at }] of this.#answers) {
      if (now - at > HOLDS_MS) this.#answers.delete(known);
    }
    const known = this.#answers.get(nodeId);
    if (known !== undefined) return known;
    const refusal = await this.#refusalOf(address);
    if (refusal === undefined) return undefined;
    const answer = { at: now, refusal };
    this.#answers.set(nodeId, answer);
    return answer;
  }

  /**
   * Asks for the unload of no model, which changes nothing: who may is told that no model is
   * named, others that they may not. Undefined when nothing is answered.
   */
  async #refusalOf(address: string): Promise<RightsView[string] | undefined> {
    const client = this.#access.client(address, { timeouts: { connect: 2 } });
    const signal = AbortSignal.timeout(PATIENCE_MS);
    try {
      await client.fleet.unloadModel("", { signal });
      return null;
    } catch (error) {
      if (error instanceof InvalidArgument) return null;
      if (signal.aborted || error instanceof TransportError) return undefined;
      if (error instanceof KakeyaError) return problemOf(error)?.problem;
      throw error;
    } finally {
      await client.close();
    }
  }
}
