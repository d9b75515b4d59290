/** Leaving a stream, in whatever way, ends its call on the node. */

import { describe, expect, test } from "vitest";

import { ClientClosed, SessionBusy, StreamConsumed, type Session } from "../src/index.js";
import { Nodes } from "./nodes.js";

const nodes = new Nodes(1);
const ENDLESS = { maxTokens: 1_000_000 };

async function session(): Promise<Session> {
  const opened = await nodes.client().createSession("tiny");
  await opened.append([1, 2, 3]);
  return opened;
}

class Stop extends Error {}

const ways: Record<string, (opened: Session) => Promise<void>> = {
  break: async (opened) => {
    for await (const _ of opened.generate(ENDLESS)) {
      break;
    }
  },
  throw: async (opened) => {
    const thrown = async () => {
      for await (const _ of opened.generate(ENDLESS)) {
        throw new Stop();
      }
    };
    await expect(thrown()).rejects.toThrow(Stop);
  },
  return: async (opened) => {
    const first = async () => {
      for await (const id of opened.generate(ENDLESS).ids()) {
        return id;
      }
      return undefined;
    };
    expect(await first()).toBe(24);
  },
  abort: async (opened) => {
    const controller = new AbortController();
    const aborted = async () => {
      for await (const _ of opened.generate({ ...ENDLESS, signal: controller.signal })) {
        controller.abort(new Stop());
      }
    };
    await expect(aborted()).rejects.toThrow(Stop);
  },
  "leave from beside": async (opened) => {
    const generation = opened.generate(ENDLESS);
    for await (const _ of generation) {
      generation.leave();
    }
    expect(generation.done).toBeNull();
  },
  "await using": async (opened) => {
    await using generation = opened.generate(ENDLESS);
    await generation[Symbol.asyncIterator]().next();
  },
  "closing the session": async (opened) => {
    await opened.generate(ENDLESS)[Symbol.asyncIterator]().next();
    await opened.close();
  },
};

describe("leaving a generation cancels it on the node", () => {
  test.each(Object.entries(ways))("%s", async (_, leave) => {
    // The node waits after its block, so that nothing but a cancellation ends its work.
    await nodes.node.set({ silent_after: 1 });
    const opened = await session();
    await leave(opened);
    expect(await nodes.node.cancelled(0)).toBe(true);
    const { streams } = await nodes.node.report();
    expect(streams).toEqual([{ sent: 4, cancelled: true }]);
  });
});

test("leaving a stream that runs at full speed stops the node at once", async () => {
  const opened = await session();
  for await (const _ of opened.generate(ENDLESS)) {
    break;
  }
  expect(await nodes.node.cancelled(0)).toBe(true);
  const { streams } = await nodes.node.report();
  expect(streams[0]?.sent).toBeLessThan(200_000);
});

test("a client that is closed leaves its streams", async () => {
  await nodes.node.set({ silent_after: 1 });
  const client = nodes.client();
  const opened = await client.createSession("tiny");
  await opened.append([1]);
  const items = opened.generate(ENDLESS)[Symbol.asyncIterator]();
  await items.next();
  const waiting = items.next();
  await client.close();
  await expect(waiting).rejects.toThrow(ClientClosed);
  expect(await nodes.node.cancelled(0)).toBe(true);
  await expect(opened.info()).rejects.toThrow(ClientClosed);
});

test("nothing is sent before the iteration begins, and it begins once", async () => {
  const opened = await session();
  const generation = opened.generate({ maxTokens: 2 });
  expect((await nodes.node.report()).streams).toEqual([]);
  await generation.completion();
  expect(generation.done?.generatedTokenCount).toBe(2);
  await expect(generation.completion()).rejects.toThrow(StreamConsumed);
});

test("a session does one thing at a time", async () => {
  await nodes.node.set({ silent_after: 1 });
  const opened = await session();
  const items = opened.generate(ENDLESS)[Symbol.asyncIterator]();
  await items.next();
  await expect(opened.append([1])).rejects.toThrow(SessionBusy);
  await expect(opened.rewind(1)).rejects.toThrow(SessionBusy);
  expect(() => opened.generate(ENDLESS)[Symbol.asyncIterator]()).toThrow(SessionBusy);
  expect((await opened.info()).historyLength).toBe(7);
  await items.return?.();
  expect(await opened.append([1])).toBe(8);
});

test("watches end on the node when they are left", async () => {
  const client = nodes.client();
  await nodes.node.set({
    node_events: [{ history: { sample_seconds: 1 } }],
    session_events: [{ snapshot: {} }],
  });
  const watches = [client.fleet.watch(), client.fleet.watchNode(), client.watchSessions()];
  for (const [number, watch] of watches.entries()) {
    for await (const _ of watch) {
      break;
    }
    expect(await nodes.node.cancelled(number)).toBe(true);
  }
});

test("an aborted watch throws the signal's reason", async () => {
  const controller = new AbortController();
  const seen: string[] = [];
  const watched = async () => {
    for await (const event of nodes.client().fleet.watch({ signal: controller.signal })) {
      seen.push(event.type);
      controller.abort(new Stop());
    }
  };
  await expect(watched()).rejects.toThrow(Stop);
  expect(seen).toEqual(["snapshot"]);
  expect(await nodes.node.cancelled(0)).toBe(true);
});
