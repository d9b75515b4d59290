import { EventEmitter } from "node:events";
import type { ClientHttp2Stream } from "node:http2";

import { expect, test } from "vitest";

import { heardSessions } from "../src/heard-sessions.js";

test("a session that fails when its manager has left it ends no process", async () => {
  const session = new EventEmitter();
  const stream = { session } as unknown as ClientHttp2Stream;
  const read: unknown[] = [];
  const manager = heardSessions({
    authority: "http://127.0.0.1:1",
    request: () => Promise.resolve(stream),
    notifyResponseByteRead: (each) => read.push(each),
  });
  // An emitter throws an error that nobody hears.
  expect(() => session.emit("error", new Error("late"))).toThrow("late");
  for (let call = 0; call < 20; call += 1) {
    expect(await manager.request("POST", "/", {}, {})).toBe(stream);
  }
  session.emit("error", new Error("late"));
  // Once a session: a listener for each call would be kept as long as it.
  expect(session.listenerCount("error")).toBe(1);
  manager.notifyResponseByteRead(stream);
  expect(read).toEqual([stream]);
});
