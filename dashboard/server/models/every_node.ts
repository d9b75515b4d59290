import { KakeyaError, type Client } from "@kakeya/runtime";

import type { Access } from "../access";

/** Nodes that are asked at once. */
const AT_ONCE = 8;
/** Milliseconds after which a node that does not answer is left out. */
const PATIENCE_MS = 3000;
/** Seconds that a connection may take. */
const CONNECT_SECONDS = 2;

export interface NodePlace {
  nodeId: string;
  /** host:port. */
  address: string;
}

/** What `ask` finds out of each of the nodes, by node id; those of which it is undefined are absent. */
export async function everyNode<Answer>(
  nodes: readonly NodePlace[],
  ask: (node: NodePlace) => Promise<Answer | undefined>,
): Promise<Record<string, Answer>> {
  const told: Record<string, Answer> = {};
  const waiting = [...nodes];
  const worker = async (): Promise<void> => {
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      const answer = await ask(next);
      if (answer !== undefined) told[next.nodeId] = answer;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return told;
}

/** What a node answers to `ask`; undefined when that takes too long, or fails as calls do. */
export async function answerOf<Answer>(
  access: Access,
  address: string,
  ask: (client: Client, signal: AbortSignal) => Promise<Answer>,
): Promise<Answer | undefined> {
  const client = access.client(address, { timeouts: { connect: CONNECT_SECONDS } });
  const signal = AbortSignal.timeout(PATIENCE_MS);
  try {
    return await ask(client, signal);
  } catch (error) {
    if (signal.aborted || error instanceof KakeyaError) return undefined;
    throw error;
  } finally {
    await client.close();
  }
}
