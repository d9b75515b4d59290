/** Chats, whatever happens in the middle; what both clients do alike is in sdks/vectors.json. */

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";

import { Conversation, plainText, type Message, type Render } from "../src/conversation.js";
import { OutOfKvMemory, SessionBusy, type Chat } from "../src/index.js";
import { ROOT } from "./child.js";
import { Nodes } from "./nodes.js";

interface ChatCase {
  readonly name: string;
  readonly set: { readonly node: { readonly tokenizer_files: Readonly<Record<string, string>> } };
}

// The tokenizer of the common cases: a first answer says TEXT in seven tokens.
const { cases } = JSON.parse(readFileSync(`${ROOT}sdks/vectors.json`, "utf8")) as {
  cases: ChatCase[];
};
const FILES = cases.find((each) => each.name.startsWith("a chat gives text"))?.set.node;
const TEXT = "Light ☕!";
const ENDLESS = 1_000_000;
// Streams of the node before the first answer: to find the model, and who else is there.
const WATCHES = 2;

const cacheBefore = process.env["XDG_CACHE_HOME"];
let cache: string;

beforeAll(() => {
  cache = mkdtempSync(join(tmpdir(), "kakeya-chat-"));
  process.env["XDG_CACHE_HOME"] = cache;
});

afterAll(() => {
  if (cacheBefore === undefined) {
    delete process.env["XDG_CACHE_HOME"];
  } else {
    process.env["XDG_CACHE_HOME"] = cacheBefore;
  }
  rmSync(cache, { recursive: true });
});

function told(chat: Chat): string[] {
  return chat.messages.map(({ role, content }) => `${role}: ${content}`);
}

describe("a chat", () => {
  const nodes = new Nodes(1);
  let chat: Chat;

  beforeEach(async () => {
    await nodes.node.set({
      tokenizer_files: FILES?.tokenizer_files,
      block_size: 1,
      ends_after: 7,
    });
    chat = await nodes.client().chat();
  });

  /** What the node holds of the chat's session. */
  async function held(): Promise<readonly number[] | undefined> {
    return (await nodes.node.report()).sessions[chat.session.sessionId];
  }

  test("an answer that is aborted keeps what came of it, as it was said", async () => {
    await nodes.node.set({ silent_after: 3 });
    const abort = new AbortController();
    const reading = (async () => {
      for await (const piece of chat.say("hello", { signal: abort.signal })) {
        if (piece === " ") {
          // Its next token is a byte of a character, which nobody sees.
          abort.abort(new Error("enough"));
        }
      }
    })();
    await expect(reading).rejects.toThrow("enough");
    expect(told(chat)).toEqual(["user: hello", "assistant: Light "]);
    expect(await nodes.node.cancelled(WATCHES)).toBe(true);
    await nodes.node.set({ silent_after: -1, ends_after: 2 });
    await chat.say("bye").text();
    expect(chat.messages).toHaveLength(4);
    expect(await held()).toEqual(chat.session.history);
  });

  test.each(["AppendTokens", "Generate"])(
    "a question without an answer is taken back: %s",
    async (method) => {
      await nodes.node.refuse(method, "RESOURCE_EXHAUSTED", { reason: "OUT_OF_KV_MEMORY" });
      await expect(chat.say("why").text()).rejects.toThrow(OutOfKvMemory);
      expect(chat.messages).toEqual([]);
      expect(await chat.say("hello").text()).toBe(TEXT);
      expect(told(chat)).toEqual(["user: hello", `assistant: ${TEXT}`]);
    },
  );

  test("a question whose sending is aborted is taken back", async () => {
    await expect(
      chat.say("why", { signal: AbortSignal.abort(new Error("no")) }).text(),
    ).rejects.toThrow("no");
    expect(chat.messages).toEqual([]);
    expect(await chat.say("hello").text()).toBe(TEXT);
    expect(await held()).toEqual(chat.session.history);
  });

  test("leaving in every way frees the chat", async () => {
    await nodes.node.set({ ends_after: -1 });
    for await (const _ of chat.say("hello", { maxTokens: ENDLESS })) {
      break;
    }
    {
      await using answer = chat.say("bye", { maxTokens: ENDLESS });
      await answer[Symbol.asyncIterator]().next();
      expect(() => chat.undo()).toThrow(SessionBusy);
    }
    const thrown = (async () => {
      for await (const _ of chat.say("why", { maxTokens: ENDLESS })) {
        throw new Error("mine");
      }
    })();
    await expect(thrown).rejects.toThrow("mine");
    for (const answer of [0, 1, 2]) {
      expect(await nodes.node.cancelled(WATCHES + answer)).toBe(true);
    }
    expect([chat.undo(), chat.undo(), chat.undo(), chat.undo()]).toEqual([
      "why",
      "bye",
      "hello",
      null,
    ]);
    await nodes.node.set({ ends_after: 7 });
    expect(await chat.say("hello").text()).toBe(TEXT);
  });

  test("leaving while the question is sent ends the answer once it was", async () => {
    const answer = chat.say("hello");
    const first = answer[Symbol.asyncIterator]().next();
    answer.leave();
    await expect(chat.say("bye").text()).rejects.toThrow(SessionBusy);
    expect((await first).done).toBe(true);
    expect(chat.messages).toEqual([]);
    expect(await chat.say("hello").text()).toBe(TEXT);
    expect((await nodes.node.report()).requests["Generate"]).toHaveLength(1);
  });

  test("of two questions at once the second is refused, and nothing of it is kept", async () => {
    const [first, second] = await Promise.allSettled([
      chat.say("hello").text(),
      chat.say("bye").text(),
    ]);
    expect(first).toMatchObject({ status: "fulfilled", value: TEXT });
    expect(second.status === "rejected" && second.reason).toBeInstanceOf(SessionBusy);
    expect(told(chat)).toEqual(["user: hello", `assistant: ${TEXT}`]);
  });
});

describe("a conversation", () => {
  // Ids are code points; "|" stands for a special token.
  const codec = {
    encode: (text: string) => [...text].map((each) => each.codePointAt(0) ?? 0),
    decode: (ids: readonly number[]) => String.fromCodePoint(...ids),
  };
  const marked: Render = (messages) =>
    messages.map(({ role, content }) => `[${role}]${content}|`).join("") + "[assistant]";
  const trimming = (messages: readonly Message[]) =>
    marked(messages.map(({ role, content }) => ({ role, content: content.trim() })));

  test.each([
    ["marked", marked],
    ["trimming", trimming],
  ])("the history is always the rendered conversation: %s", (_, render) => {
    const seed = 20_261_127;
    console.log(`seed ${seed}`);
    let state = seed;
    const below = (count: number) => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
      return (state >>> 16) % count;
    };
    const conversation = new Conversation(codec, render, "be kind");
    let history: number[] = [];
    for (let step = 0; step < 300; step += 1) {
      if (below(4) === 0) {
        conversation.takeBack();
      }
      if (below(5) === 0) {
        history = history.slice(0, below(history.length + 1));
      }
      const { keep, append } = conversation.ask(`${step} `, history);
      history = [...history.slice(0, keep), ...append];
      expect(codec.decode(history)).toBe(render(conversation.messages));
      const answer = ["yes|", " no |", "", "cut"][below(4)] ?? "";
      history.push(...codec.encode(answer));
      conversation.answered(codec.encode(answer), answer.replace("|", ""));
    }
  });

  test("each turn appends its own tokens alone, also where turns are joined plainly", () => {
    const conversation = new Conversation(codec, plainText);
    const first = conversation.ask("x = 1", []);
    expect(codec.decode(first.append)).toBe("x = 1\n");
    conversation.answered(codec.encode("y = 2"), "y = 2");
    const history = [...first.append, ...codec.encode("y = 2")];
    const { keep, append } = conversation.ask("z", history);
    expect([keep, codec.decode(append)]).toEqual([history.length, "\nz\n"]);
  });
});
