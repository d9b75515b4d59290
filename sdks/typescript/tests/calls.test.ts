/** Deadlines, retries, credentials and signals of single calls. */

import { describe, expect, test } from "vitest";

import {
  BadRequest,
  Client,
  DeadlineExceeded,
  DEFAULT_TIMEOUTS,
  HistoryLengthMismatch,
  KakeyaError,
  KeyExposed,
  NodeUnreachable,
  TokenOutOfVocabulary,
  UnexpectedError,
  UsageError,
} from "../src/index.js";
import { RetryBudget, pauseSeconds } from "../src/retries.js";
import { Nodes } from "./nodes.js";

const nodes = new Nodes(1);

async function failure(work: Promise<unknown>): Promise<KakeyaError> {
  const error: unknown = await work.then(
    () => undefined,
    (each: unknown) => each,
  );
  expect(error).toBeInstanceOf(KakeyaError);
  return error as KakeyaError;
}

describe("deadlines", () => {
  test("a generation that is silent for too long is left, on the node too", async () => {
    await nodes.node.set({ silent_after: 1 });
    const session = await nodes.client({ timeouts: { streamIdle: 0.2 } }).createSession("tiny");
    await session.append([1]);
    const items = session.generate({ maxTokens: 100 })[Symbol.asyncIterator]();
    expect((await items.next()).value?.tokenIds).toHaveLength(4);
    const error = await failure(items.next());
    expect(error).toBeInstanceOf(DeadlineExceeded);
    expect(error.message).toContain("0.2 s");
    expect(await nodes.node.cancelled(0)).toBe(true);
    // What arrived stays, and the session goes on from it.
    expect(session.historyLength).toBe(5);
    expect(await session.append([9])).toBe(6);
  });

  test("an application that does not read hears no silence", async () => {
    // What a busy machine's node answers in, and the application does not read for longer.
    const session = await nodes.client({ timeouts: { streamIdle: 1 } }).createSession("tiny");
    await session.append([1]);
    let count = 0;
    for await (const tokens of session.generate({ maxTokens: 8 })) {
      count += tokens.tokenIds.length;
      const until = performance.now() + 1500;
      while (performance.now() < until) {
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    }
    expect(count).toBe(8);
  });

  test("a generation has a deadline of its own", async () => {
    await nodes.node.set({ silent_after: 1 });
    const session = await nodes.client({ timeouts: { generation: 0.3 } }).createSession("tiny");
    await session.append([1]);
    const error = await failure(session.generate({ maxTokens: 100 }).completion());
    expect(error).toBeInstanceOf(DeadlineExceeded);
  });

  test("a node that is frozen is found by the deadline of a call", async () => {
    const client = nodes.client({ timeouts: { unary: 2 } });
    await client.fleet.node();
    nodes.node.freeze();
    try {
      expect(await failure(client.fleet.node())).toBeInstanceOf(DeadlineExceeded);
    } finally {
      nodes.node.thaw();
    }
  });

  test("an address that answers nothing is given up after the time to connect", async () => {
    // Reserved for documentation: packets to it are lost, or refused at once.
    const client = new Client("192.0.2.1:9", { timeouts: { connect: 0.3 } });
    const error = await failure(client.fleet.node());
    expect(error).toBeInstanceOf(NodeUnreachable);
    expect(error.metadata["address"]).toBe("192.0.2.1:9");
    await client.close();
  });

  test("nobody answers at a closed port, at once", async () => {
    const client = nodes.client();
    await nodes.node.tell({ stop: {} });
    const error = await failure(client.fleet.node());
    expect(error).toBeInstanceOf(NodeUnreachable);
    expect(error.message).toContain("fleet join");
    // Never sent again to an address where no node was seen.
    expect(error.attempts).toBe(1);
  });

  test("all have defaults, and those that are given replace them", () => {
    expect(Object.values(DEFAULT_TIMEOUTS).every((seconds) => seconds > 0)).toBe(true);
  });
});

describe("retries", () => {
  test("an idempotent call is sent again, another one is not", async () => {
    const client = nodes.client();
    await client.fleet.node();
    await nodes.node.refuse("GetNode", "UNAVAILABLE");
    await nodes.node.refuse("GetNode", "UNAVAILABLE");
    expect((await client.fleet.node()).load.kvBytes).toBe(7);
    await nodes.node.refuse("Leave", "UNAVAILABLE");
    const error = await failure(client.fleet.leave());
    expect(error).toBeInstanceOf(NodeUnreachable);
    expect(error.attempts).toBe(1);
  });

  test("are bounded by a budget", async () => {
    const budget = new RetryBudget(2, 0.5);
    expect([budget.spend(), budget.spend(), budget.spend()]).toEqual([true, true, false]);
    budget.earn();
    expect(budget.spend()).toBe(false);
    budget.earn();
    expect(budget.spend()).toBe(true);
  });

  test("wait longer each time, up to two seconds", () => {
    expect([0, 1, 2, 9].map((retry) => pauseSeconds(retry, 1))).toEqual([0.1, 0.2, 0.4, 2]);
    expect(pauseSeconds(9, 0)).toBe(0);
  });
});

describe("errors", () => {
  test("an answer outside the contract is named", async () => {
    await nodes.node.set({ ends_without_done: true });
    const session = await nodes.client().createSession("tiny");
    await session.append([1]);
    const error = await failure(session.generate({ maxTokens: 4 }).completion());
    expect(error).toBeInstanceOf(UnexpectedError);
  });

  test("tokens that are missing are noticed, and the call is left", async () => {
    await nodes.node.set({ skips_position: true });
    const session = await nodes.client().createSession("tiny");
    await session.append([1]);
    const error = await failure(session.generate({ maxTokens: 1_000_000 }).completion());
    expect(error).toBeInstanceOf(HistoryLengthMismatch);
    expect(await nodes.node.cancelled(0)).toBe(true);
  });

  test("a reason that is newer than the client keeps its name", async () => {
    await nodes.node.refuse("GetNode", "NOT_FOUND", { reason: "NOT_YET_KNOWN" });
    const error = await failure(nodes.client().fleet.node());
    expect([error.name, error.reason, error.code]).toEqual([
      "NotFound",
      "NOT_YET_KNOWN",
      "NOT_FOUND",
    ]);
  });

  test("numbers that no field holds are refused before they are sent", async () => {
    const session = await nodes.client().createSession("tiny");
    for (const wrong of [-1, 1.5, 2 ** 32, Number.NaN]) {
      expect(() => session.generate({ maxTokens: wrong })).toThrow(BadRequest);
    }
    for (const wrong of [-1, 2 ** 32]) {
      await expect(session.append([wrong])).rejects.toThrow(TokenOutOfVocabulary);
    }
    expect(() => nodes.client({ timeouts: { connect: -1 } })).toThrow(
      /^timeouts\.connect is a number from 0/,
    );
    await expect(
      // @ts-expect-error: JavaScript callers have no types.
      nodes.client().createSession("tiny", { kvStrategy: "window" }),
    ).rejects.toThrow("sink_window");
    expect((await nodes.node.report()).requests["AppendTokens"]).toBeUndefined();
  });

  test.each(["", "nowhere", "host:", ":1", "host:12x", "http://host:1", "a/b:1"])(
    "%j is no address",
    (address) => {
      expect(() => new Client(address)).toThrow(UsageError);
    },
  );
});

describe("credentials", () => {
  test("a key is sent with every call", async () => {
    const client = nodes.client({ apiKey: "secret" });
    const session = await client.createSession("tiny");
    await session.append([1]);
    await session.generate({ maxTokens: 1 }).completion();
    const { authorizations } = await nodes.node.report();
    expect(new Set(authorizations)).toEqual(new Set(["Bearer secret"]));
  });

  test.each(["10.0.0.7:7700", "example.org:7700", "127.0.0.1.example.org:7700"])(
    "a key never travels to %s in plain text",
    (address) => {
      expect(() => new Client(address, { apiKey: "secret" })).toThrow(KeyExposed);
      expect(() => new Client(address, { apiKey: "secret", tls: {} })).not.toThrow();
    },
  );

  test("a key does not follow a plain redirection beyond this machine", async () => {
    await nodes.node.refuse("CreateSession", "FAILED_PRECONDITION", {
      reason: "MODEL_SERVED_ELSEWHERE",
      metadata: { address: "10.0.0.7:7700" },
    });
    const client = nodes.client({ apiKey: "secret" });
    await expect(client.createSession("tiny")).rejects.toThrow(KeyExposed);
  });

  test("what is no key, and half a certificate, is refused", () => {
    expect(() => new Client("127.0.0.1:1", { apiKey: "two\nlines" })).toThrow(UsageError);
    expect(() => new Client("127.0.0.1:1", { tls: { certificate: "x" } })).toThrow(UsageError);
  });
});

describe("signals", () => {
  test("an aborted call throws the signal's reason", async () => {
    const controller = new AbortController();
    controller.abort(new Error("enough"));
    const { signal } = controller;
    const client = nodes.client();
    await expect(client.createSession("tiny", { signal })).rejects.toThrow("enough");
    await expect(client.fleet.plan({ verifierModel: "tiny", signal })).rejects.toThrow("enough");
    expect((await nodes.node.report()).requests).toEqual({});
  });

  test("a signal ends the wait for a frozen node", async () => {
    const client = nodes.client();
    await client.fleet.node();
    nodes.node.freeze();
    try {
      const signal = AbortSignal.timeout(150);
      await expect(client.fleet.node({ signal })).rejects.toHaveProperty("name", "TimeoutError");
    } finally {
      nodes.node.thaw();
    }
  });
});
