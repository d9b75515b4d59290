import { setTimeout as pause } from "node:timers/promises";

import { KakeyaError, type Session } from "@kakeya/runtime";

import type { ChatMessage } from "../../shared/messages";

/** Between two looks; a prompt that is read sooner shows nothing. */
const LOOK_MS = 500;

/** What it needs of a session. */
export type Read = Pick<Session, "append" | "historyLength"> & {
  info(options: { signal: AbortSignal }): Promise<{ computedTokenCount: number }>;
};

/**
 * Appends ids, and tells meanwhile how far the whole history is read. Throws what the append
 * throws; a node that does not tell now is asked again.
 */
export async function* read(
  session: Read,
  ids: readonly number[],
  signal: AbortSignal,
  lookMs = LOOK_MS,
): AsyncGenerator<ChatMessage> {
  const tokenCount = session.historyLength + ids.length;
  const over = new AbortController();
  const appending = session.append(ids, { signal }).finally(() => {
    over.abort();
  });
  // Whoever leaves before the end does not ask for it.
  appending.catch(() => undefined);
  while (await passes(lookMs, over.signal)) {
    const readCount = await computed(session, signal);
    if (readCount > 0 && !over.signal.aborted) yield { type: "reading", readCount, tokenCount };
  }
  await appending;
}

/** Whether so many milliseconds pass before `over`. */
async function passes(milliseconds: number, over: AbortSignal): Promise<boolean> {
  try {
    await pause(milliseconds, undefined, { signal: over });
    return true;
  } catch (error) {
    if (!over.aborted) throw error;
    return false;
  }
}

/** 0 from a node that does not tell. */
async function computed(session: Read, signal: AbortSignal): Promise<number> {
  try {
    return (await session.info({ signal })).computedTokenCount;
  } catch (error) {
    // The append says what became of the node.
    if (error instanceof KakeyaError) return 0;
    throw error;
  }
}
