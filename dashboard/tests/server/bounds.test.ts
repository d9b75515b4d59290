import { once } from "node:events";
import { connect, type Socket } from "node:net";

import { afterEach, beforeEach, expect, test } from "vitest";

import type { Files } from "../../server/http/files";
import { Pages } from "../../server/http/pages";
import { HttpServer } from "../../server/http/server";
import { LIMITS } from "../../shared/limits";
import { until } from "../process/until";
import { fleetView } from "../views";

/** Answers of plans that wait, each until it is called. */
let waiting: (() => void)[];
let pages: Pages;
let server: HttpServer;
let address: URL;
const sockets: Socket[] = [];

beforeEach(async () => {
  waiting = [];
  pages = new Pages(
    () => ({ type: "fleet", fleet: fleetView(["a"]), now: 1 }),
    () => undefined,
  );
  server = new HttpServer({
    files: {} as Files,
    pages,
    plan: () => new Promise((resolve) => waiting.push(() => resolve({ done: true }))),
    generate: async function* () {},
    logs: async function* () {},
    close: () => Promise.resolve(),
    end: () => Promise.resolve(),
    rights: () => Promise.resolve(),
    load: () => Promise.resolve(),
    unload: () => Promise.resolve(),
    fit: () => Promise.resolve(),
    stored: () => Promise.resolve(),
    pull: () => Promise.resolve(),
    remove: () => Promise.resolve(),
  });
  address = new URL(await server.listen("127.0.0.1", 0));
});

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await server.end();
});

/** A connection that says `text`, and what comes back on it. */
async function connection(text: string): Promise<{ socket: Socket; heard: () => string }> {
  const socket = connect(Number(address.port), address.hostname);
  sockets.push(socket);
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  socket.on("error", () => undefined);
  await once(socket, "connect");
  if (text !== "") socket.write(text);
  return { socket, heard: () => Buffer.concat(chunks).toString("utf8") };
}

const listening = (): string => `GET /events HTTP/1.1\r\nHost: ${address.host}\r\n\r\n`;

function planned(): Promise<Response> {
  const headers = { "content-type": "application/json", connection: "close" };
  return fetch(new URL("/plan", address), { method: "POST", headers, body: "{}" });
}

async function reasonOf(answer: Response): Promise<string> {
  return ((await answer.json()) as { reason: string }).reason;
}

test("one page too many is refused, and comes in once another has left", async () => {
  const open = await Promise.all(
    Array.from({ length: LIMITS.pages }, () => connection(listening())),
  );
  await until(() => pages.count === LIMITS.pages, "all pages");
  const refused = await fetch(new URL("/events", address));
  expect([refused.status, await reasonOf(refused)]).toEqual([503, "TOO_MANY_REQUESTS"]);
  open[0]?.socket.destroy();
  await until(() => pages.count < LIMITS.pages, "its end");
  const late = await connection(listening());
  await until(() => late.heard().includes("200 OK"), "a page");
});

test("one request too many is refused, and the others are answered", async () => {
  const asked = Array.from({ length: LIMITS.requests }, planned);
  await until(() => waiting.length === LIMITS.requests, "all requests");
  const refused = await planned();
  expect([refused.status, await reasonOf(refused)]).toEqual([503, "TOO_MANY_REQUESTS"]);
  for (const answer of waiting) answer();
  for (const answer of await Promise.all(asked)) expect(answer.status).toBe(200);
  const late = planned();
  await until(() => waiting.length > LIMITS.requests, "another");
  waiting.at(-1)?.();
  expect((await late).status).toBe(200);
});

test("connections that say nothing make way, a page's stays", async () => {
  const page = await connection(listening());
  await until(() => pages.count === 1, "the page");
  const silent: Socket[] = [];
  for (let count = 1; count < LIMITS.connections; count++) {
    silent.push((await connection("")).socket);
  }
  const closed = once(silent[0] as Socket, "close");
  const answer = planned();
  await until(() => waiting.length === 1, "the request");
  waiting[0]?.();
  expect((await answer).status).toBe(200);
  await closed;
  expect(silent[1]?.destroyed).toBe(false);
  expect(page.socket.destroyed).toBe(false);
  expect(pages.count).toBe(1);
});
