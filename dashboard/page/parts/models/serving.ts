/** What the page has asked nodes to serve and to keep, and whether it may. */

import { signal } from "@preact/signals";

import type {
  DiskQuestion,
  LoadQuestion,
  Problem,
  RightsView,
  Role,
} from "../../../shared/messages";
import {
  load,
  ProblemError,
  pull,
  removeModel,
  rights as askRights,
  unload,
} from "../../state/ask";
import { lookAtDisks } from "./stored";

/** By node id: null where models may be changed, else the refusal; undefined while it is not known. */
export const rights = signal<RightsView | undefined>(undefined);

/** What became of the latest request of a kind for a model on a node. */
export type Asked =
  | { state: "asking" }
  /** The node has begun: its transfers tell the rest. */
  | { state: "begun" }
  /** A pull: the node had it already. */
  | { state: "there" }
  | { state: "refused"; problem: Problem };

/** By `askedKey`. */
export const asked = signal<ReadonlyMap<string, Asked>>(new Map());

/** `role`: of what is loaded and unloaded. */
export function askedKey(
  what: "load" | "unload" | "pull" | "remove",
  { nodeId, model, role }: DiskQuestion & { role?: Role },
): string {
  return JSON.stringify([what, nodeId, role ?? "", model]);
}

export function mayChange(nodeId: string): boolean {
  return rights.value?.[nodeId] === null;
}

/** Asks every node whether its models may be changed from here. */
export async function lookAtRights(signal: AbortSignal): Promise<void> {
  try {
    rights.value = await askRights(signal);
  } catch (error) {
    // Who cannot be asked shows no buttons; the banner says that the process is gone.
    if (!(error instanceof ProblemError) && !signal.aborted) throw error;
  }
}

/** Has a node serve a model. */
export async function beginLoad(question: LoadQuestion): Promise<void> {
  await tracked(askedKey("load", question), async () => {
    const { servedAs } = await load(question);
    return servedAs === "" ? { state: "begun" } : undefined;
  });
}

/** Has a node serve a model no more. */
export async function beginUnload(question: LoadQuestion): Promise<void> {
  await tracked(askedKey("unload", question), async () => {
    await unload(question);
    return undefined;
  });
}

/** Has a node bring a model to its disk. */
export async function beginPull(question: DiskQuestion): Promise<void> {
  await tracked(askedKey("pull", question), async () => {
    const { wasThere } = await pull(question);
    return { state: wasThere ? "there" : "begun" };
  });
}

/** Removes what a pull brought, or gives up one that runs; whether that was done. */
export async function beginRemove(question: DiskQuestion): Promise<boolean> {
  const key = askedKey("remove", question);
  await tracked(key, async () => {
    await removeModel(question);
    return undefined;
  });
  const isDone = asked.peek().get(key) === undefined;
  // Also after a refusal: what is shown may be what is gone.
  await lookAtDisks();
  return isDone;
}

/** Forgets a request, as when its refusal was read. */
export function dismiss(key: string): void {
  put(key, undefined);
}

async function tracked(key: string, ask: () => Promise<Asked | undefined>): Promise<void> {
  put(key, { state: "asking" });
  try {
    put(key, await ask());
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    put(key, { state: "refused", problem: error.problem });
  }
}

function put(key: string, state: Asked | undefined): void {
  const after = new Map(asked.peek());
  if (state === undefined) after.delete(key);
  else after.set(key, state);
  asked.value = after;
}
