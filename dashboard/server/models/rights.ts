import { InvalidArgument, RpcError } from "@kakeya/runtime";

import type { RightsView } from "../../shared/messages";
import type { Access } from "../access";
import { problemOf } from "../problem";
import { answerOf, everyNode, type NodePlace } from "./every_node";

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
  async ask(nodes: readonly NodePlace[]): Promise<RightsView> {
    const answers = await everyNode(nodes, (node) => this.#answer(node));
    return Object.fromEntries(
      Object.entries(answers).map(([nodeId, { refusal }]) => [nodeId, refusal]),
    );
  }

  async #answer({ nodeId, address }: NodePlace): Promise<Answer | undefined> {
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
  #refusalOf(address: string): Promise<RightsView[string] | undefined> {
    return answerOf(this.#access, address, async (client, signal) => {
      try {
        await client.fleet.unloadModel("", { signal });
        return null;
      } catch (error) {
        if (error instanceof InvalidArgument) return null;
        if (error instanceof RpcError && !signal.aborted) return problemOf(error)?.problem;
        throw error;
      }
    });
  }
}
