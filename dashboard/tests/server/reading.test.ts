import { NodeUnreachable } from "@kakeya/runtime";
import { expect, test } from "vitest";

import { read, type Read } from "../../server/chat/reading";
import type { ChatMessage } from "../../shared/messages";

/** A session of 10 tokens that says so many are computed, then that its append ended. */
function reader(computed: (number | null)[], end: () => number | Promise<never>): Read {
  let resolve = (): void => undefined;
  const over = new Promise<void>((done) => {
    resolve = done;
  });
  return {
    historyLength: 10,
    append: () => over.then(end),
    info: () => {
      const count = computed.shift();
      if (computed.length === 0) resolve();
      if (count === null) return Promise.reject(new NodeUnreachable("gone"));
      return Promise.resolve({ computedTokenCount: count ?? 0 });
    },
  };
}

async function told(session: Read, into: ChatMessage[]): Promise<void> {
  for await (const each of read(session, [1, 2, 3, 4], new AbortController().signal, 1)) {
    into.push(each);
  }
}

test("while a prompt is read it is told how far; a node that is silent is asked again", async () => {
  const messages: ChatMessage[] = [];
  await told(
    reader([0, 11, null, 12, 13], () => 14),
    messages,
  );
  expect(messages.slice(0, 2)).toEqual([
    { type: "reading", readCount: 11, tokenCount: 14 },
    { type: "reading", readCount: 12, tokenCount: 14 },
  ]);
});

test("an append that fails says why", async () => {
  const messages: ChatMessage[] = [];
  const failing = reader([12, 13], () => Promise.reject(new NodeUnreachable("lost")));
  await expect(told(failing, messages)).rejects.toThrow("lost");
  expect(messages[0]).toEqual({ type: "reading", readCount: 12, tokenCount: 14 });
});
