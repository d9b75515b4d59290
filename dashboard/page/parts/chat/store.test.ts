import { beforeEach, expect, test } from "vitest";

import {
  CHARACTER_LIMIT,
  CHAT_LIMIT,
  forgetAll,
  keep,
  keptChats,
  titleOf,
  type Chat,
  type Kept,
} from "./store";

/** Storage that refuses what is more than `room` characters. */
class Shelf implements Kept {
  readonly #texts = new Map<string, string>();
  room = Infinity;

  get length(): number {
    return this.#texts.size;
  }
  key(index: number): string | null {
    return [...this.#texts.keys()][index] ?? null;
  }
  getItem(key: string): string | null {
    return this.#texts.get(key) ?? null;
  }
  removeItem(key: string): void {
    this.#texts.delete(key);
  }
  setItem(key: string, text: string): void {
    const others = [...this.#texts].filter(([name]) => name !== key);
    const size = others.reduce((sum, [, each]) => sum + each.length, text.length);
    if (size > this.room) throw new DOMException("It is full.", "QuotaExceededError");
    this.#texts.set(key, text);
  }
}

let shelf: Shelf;
beforeEach(() => {
  shelf = new Shelf();
});

function chat(number: number, content = `question ${number}`): Chat {
  return {
    id: `c${number}`,
    at: number,
    model: "tiny",
    system: "",
    turns: [{ role: "user", content }],
  };
}

const kept = (): string[] => keptChats(shelf).map(({ id }) => id);

test("chats come back as they were, the latest first", () => {
  const answered: Chat = {
    ...chat(1),
    turns: [
      { role: "user", content: "<b>hm</b>" },
      {
        role: "assistant",
        content: "ab",
        facts: {
          ...{ model: "tiny", verifier: "a", proposer: "", ended: "eos", tokenCount: 2 },
          ...{ tokensPerSecond: 3.5, firstTokenSeconds: 0.1, draftedCount: 4, acceptedCount: 1 },
          ...{ keptTokenCount: 0, runs: [1, 1] },
        },
      },
    ],
  };
  expect(keep(shelf, answered)).toBe(true);
  expect(keep(shelf, chat(2))).toBe(true);
  expect(keptChats(shelf)).toEqual([chat(2), answered]);
  shelf.setItem("kakeya-theme", "dark");
  forgetAll(shelf);
  expect([kept(), shelf.length]).toEqual([[], 1]);
});

test.each([
  "",
  "null",
  "[]",
  '{"at":1}',
  '{"at":1,"model":"m","system":"","turns":[{"role":"system","content":"x"}]}',
  '{"at":1,"model":"m","system":"","turns":[{"role":"user","content":7}]}',
  '{"at":1,"model":"m","system":"","turns":[{"role":"user","content":"x","facts":{"runs":[-1]}}]}',
])("what is no chat is left alone: %s", (text) => {
  shelf.setItem("kakeya-chat-x", text);
  keep(shelf, chat(1));
  expect(kept()).toEqual(["c1"]);
  expect(shelf.getItem("kakeya-chat-x")).toBe(text);
});

test("the oldest make room: for their number, their size, and where the browser is full", () => {
  for (let number = 0; number < CHAT_LIMIT + 3; number += 1) keep(shelf, chat(number));
  expect([kept().length, kept().at(-1)]).toEqual([CHAT_LIMIT, "c3"]);
  expect(keep(shelf, chat(100, "x".repeat(CHARACTER_LIMIT - 100)))).toBe(true);
  expect(kept()).toEqual(["c100"]);
  expect(keep(shelf, chat(101, "x".repeat(CHARACTER_LIMIT)))).toBe(false);
  expect(kept()).toEqual(["c100"]);
  shelf.room = 1000;
  expect(keep(shelf, chat(102))).toBe(true);
  expect(kept()).toEqual(["c102"]);
  shelf.room = 10;
  expect(keep(shelf, chat(103))).toBe(false);
});

test("a chat is called by its first question", () => {
  expect(titleOf(chat(1, " Why?\nmore"))).toBe("Why?");
  expect(titleOf(chat(1, "x".repeat(100)))).toBe(`${"x".repeat(59)}…`);
  expect(titleOf({ turns: [] })).toBe("New chat");
});
