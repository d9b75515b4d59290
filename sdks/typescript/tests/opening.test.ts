/** Sessions with first tokens that one request cannot take; vectors.json has the plain cases. */

import { describe, expect, test } from "vitest";

import { OutOfKvMemory, TokenOutOfVocabulary } from "../src/index.js";
import { MAX_APPEND_TOKENS } from "../src/place.js";
import { Nodes } from "./nodes.js";
import type { ScriptedNode } from "./scripted-node.js";

const nodes = new Nodes(2);
const LONG = Array.from({ length: 2 * MAX_APPEND_TOKENS + 3 }, (_, index) => index % 997);

/** Ids of each request that brought some. */
async function counts(node: ScriptedNode): Promise<number[]> {
  const { requests } = await node.report();
  type Brought = { initial_token_ids?: number[]; token_ids?: number[] };
  const all = [...(requests["CreateSession"] ?? []), ...(requests["AppendTokens"] ?? [])];
  return all
    .map((each) => (each as Brought).initial_token_ids ?? (each as Brought).token_ids ?? [])
    .map((ids) => ids.length);
}

describe.each([
  ["that takes first tokens", true, [MAX_APPEND_TOKENS, MAX_APPEND_TOKENS, 3]],
  ["of an older version", false, [MAX_APPEND_TOKENS, MAX_APPEND_TOKENS, MAX_APPEND_TOKENS, 3]],
])("at a node %s", (_, takesFirstTokens, expected) => {
  test("the rest is appended", async () => {
    await nodes.node.set({
      takes_first_tokens: takesFirstTokens,
      opened: { prefill_seconds: takesFirstTokens ? 4 : 0 },
      appended: { prefill_seconds: 0.5 },
    });
    const session = await nodes.client().createSession("tiny", { tokens: LONG });
    expect(session.history).toEqual(LONG);
    expect((await nodes.node.report()).sessions[session.sessionId]).toEqual(LONG);
    expect(await counts(nodes.node)).toEqual(expected);
    expect(session.prefillSeconds).toBe(takesFirstTokens ? 5 : 1.5);
  });

  test("a lost session is opened again with its whole history", async () => {
    await nodes.join();
    await nodes.other.set({ takes_first_tokens: takesFirstTokens });
    const options = { tokens: LONG, resume: true };
    const session = await nodes.client().createSession("tiny", options);
    await nodes.node.refuse("Generate", "UNAVAILABLE", { reason: "DRAINING" });
    const { tokenIds } = await session.generate({ maxTokens: 4 }).completion();
    const { sessions } = await nodes.other.report();
    expect(sessions[session.sessionId]).toEqual([...LONG, ...tokenIds]);
    expect(await counts(nodes.other)).toEqual(expected);
  });
});

test("no session stays open when the rest is refused", async () => {
  const opening = nodes.client().createSession("tiny", { tokens: [...LONG, 1000] });
  await expect(opening).rejects.toThrow(TokenOutOfVocabulary);
  expect((await nodes.node.report()).sessions).toEqual({});
});

test("an error reads as its problem and its mend", () => {
  const told = new OutOfKvMemory("no room.", { metadata: { mend: "close sessions" } });
  expect([told.message, told.problem]).toEqual(["no room; close sessions", "no room."]);
  const said = new OutOfKvMemory("no room: close sessions");
  expect([String(said), said.mend]).toEqual(["OutOfKvMemory: no room: close sessions", ""]);
});
