/** What of a node's log file is read, and what its lines say. */

import { appendFile, mkdtemp, rename, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, expect, test } from "vitest";

import { LogReader } from "../../server/logs/log_lines";
import { LogTail, MOST_BYTES } from "../../server/logs/log_tail";
import { Logs } from "../../server/logs/logs";
import { LIMITS } from "../../shared/limits";
import type { LogMessage } from "../../shared/messages";

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "log-"));
});

afterAll(async () => {
  await rm(folder, { recursive: true });
});

test("lines have their time and level, and what has none belongs to the line before", () => {
  const reader = new LogReader();
  const at = "2026-11-24T02:07:31.250000Z";
  const told = { event: "load_failed", model: "tiny", count: 2, node: "mini-1" };
  const read = [
    "Starting.",
    JSON.stringify({ ...told, level: "critical", timestamp: at }),
    "  a line of a traceback",
    `${at} [warning  ] peer_lost      peer=x`,
    "{ no JSON",
    JSON.stringify({ event: "x", level: "info", timestamp: "soon", exception: "Traceback" }),
  ].map((line) => reader.read(line));
  const time = Date.parse(at);
  expect(read.map(({ at: when, level, text }) => [when, level, text])).toEqual([
    [0, "info", "Starting."],
    [time, "error", "load_failed  model=tiny  count=2"],
    [time, "error", "  a line of a traceback"],
    [time, "warning", "peer_lost      peer=x"],
    [time, "warning", "{ no JSON"],
    [time, "info", "x\nTraceback"],
  ]);
  expect(read.map(({ number }) => number)).toEqual([1, 2, 3, 4, 5, 6]);
});

test("of a long file the end is read in whole lines, then what is written, also anew", async () => {
  const path = join(folder, "long");
  const line = `${"é".repeat(49)}\n`;
  await writeFile(path, line.repeat(Math.ceil(MOST_BYTES / 99) + 10));
  const tail = await LogTail.of(path);
  const first = await tail.lines();
  expect(first.length * 99).toBeGreaterThan(MOST_BYTES - 200);
  expect(new Set(first)).toEqual(new Set([line.trim()]));
  expect(await tail.lines()).toEqual([]);
  await appendFile(path, "one\ntw");
  expect(await tail.lines()).toEqual(["one"]);
  await appendFile(path, "o\n");
  expect(await tail.lines()).toEqual(["two"]);
  await truncate(path);
  await appendFile(path, "anew\n");
  expect(await tail.lines()).toEqual(["anew"]);
  await appendFile(path, "last\n");
  await rename(path, `${path}.1`);
  expect(await tail.lines()).toEqual(["last"]);
  expect(await tail.lines()).toEqual([]);
  await writeFile(path, "first of the next\n");
  expect(await tail.lines()).toEqual(["first of the next"]);
  await tail.close();
});

test("a log is followed by whom its parent named alone, so many at once", async () => {
  const path = join(folder, "node");
  await writeFile(path, "hello\n");
  const logs = new Logs((address) => (address === "127.0.0.1:1" ? "here" : ""));
  logs.tell({ "127.0.0.1:1": path, "127.0.0.1:2": "/etc/passwd" });
  const left = new AbortController();
  const begun: AsyncGenerator<LogMessage>[] = [];
  for (let count = 0; count < LIMITS.logs; count += 1) {
    const following = logs.follow({ nodeId: "here" }, left.signal);
    begun.push(following);
    expect((await following.next()).value).toEqual({ type: "file", path });
  }
  expect((await begun[0]!.next()).value).toMatchObject({ lines: [{ number: 1, text: "hello" }] });
  const more = logs.follow({ nodeId: "here" }, left.signal);
  await expect(more.next()).rejects.toMatchObject({ problem: { reason: "TOO_MANY_REQUESTS" } });
  left.abort();
  for (const each of begun) await each.return(undefined);
  // Who left made room; a path that the page names is no node's.
  const elsewhere = logs.follow({ nodeId: "/etc/passwd" }, left.signal);
  expect((await elsewhere.next()).value).toEqual({ type: "file", path: "" });
  expect((await elsewhere.next()).done).toBe(true);
  await rm(path);
  const gone = logs.follow({ nodeId: "here" }, left.signal);
  await expect(gone.next()).rejects.toMatchObject({ problem: { reason: "UNAVAILABLE" } });
});
