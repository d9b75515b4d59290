import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

import { afterEach, beforeEach, expect, test } from "vitest";

import { Pages } from "../../server/http/pages";
import type { Message } from "../../shared/messages";
import { Follower } from "../process/follower";
import { until } from "../process/until";
import { eventView, fleetView, sampleView } from "../views";

let server: Server;
let pages: Pages;
let url: string;
let wholes: number;

beforeEach(async () => {
  wholes = 0;
  pages = new Pages(
    () => {
      wholes += 1;
      return { type: "fleet", fleet: fleetView(["a"]), now: wholes };
    },
    () => undefined,
  );
  server = createServer((request, response) => pages.add(request, response)).listen(0, "127.0.0.1");
  await once(server, "listening");
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
});

afterEach(async () => {
  pages.end();
  server.close();
  server.closeAllConnections();
  await once(server, "close");
});

test("a page gets the whole fleet, then every message", async () => {
  const page = new Follower();
  await page.open(url);
  await until(() => page.count("fleet") === 1, "the whole fleet");
  pages.send([{ type: "event", event: eventView("a", 1) }]);
  pages.send([{ type: "sample", nodeId: "a", sample: sampleView(1) }]);
  await until(() => page.count("sample") === 1, "the sample");
  expect(page.messages.map(({ type }) => type)).toEqual(["fleet", "event", "sample"]);
  page.close();
  await until(() => pages.count === 0, "the page's end");
});

test("a page that does not read is skipped, and gets the whole fleet when it reads again", async () => {
  const [slow, quick] = [new Follower(), new Follower()];
  await slow.open(url);
  await quick.open(url);
  await until(() => slow.count("fleet") === 1 && quick.count("fleet") === 1, "both pages");
  slow.pause();
  const large = { ...eventView("a", 1), message: "x".repeat(300_000) };
  const message: Message = { type: "event", event: large };
  // 18 MB: far more than sockets and the permitted backlog hold.
  for (let round = 0; round < 60; round += 1) {
    pages.send([message]);
    await until(() => quick.count("event") === round + 1, "the quick page");
  }
  const before = process.memoryUsage().rss;
  slow.resume();
  await until(() => slow.count("fleet") === 2, "a fresh whole fleet");
  expect(slow.count("event")).toBeLessThan(60);
  expect(wholes).toBe(3);
  expect(process.memoryUsage().rss - before).toBeLessThan(100e6);
  pages.send([{ type: "removed", nodeId: "a" }]);
  await until(() => slow.count("removed") === 1, "what follows");
  slow.close();
  quick.close();
});
