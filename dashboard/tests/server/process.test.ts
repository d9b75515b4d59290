import { once } from "node:events";
import { request, type IncomingMessage } from "node:http";

import { afterAll, beforeAll, expect, test } from "vitest";

import { cutWatch } from "../process/cut_watch";
import { dashboard, synthetic, type Dashboard, type SyntheticNodes } from "../process/dashboard";
import { Follower } from "../process/follower";
import { until } from "../process/until";

let fleet: SyntheticNodes;
let board: Dashboard;

beforeAll(async () => {
  fleet = await synthetic(4, "--quiet");
  board = await dashboard(fleet.address);
});

afterAll(async () => {
  await board.child.end();
  await fleet.child.end();
});

/** The status of the answer to a request whose target no client would write. */
async function statusOf(target: string): Promise<number> {
  const { hostname, port } = new URL(board.url);
  const asked = request({
    ...{ hostname, port, path: target },
    headers: { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" },
  });
  asked.end();
  const [answer] = (await once(asked, "response")) as [IncomingMessage];
  answer.resume();
  return answer.statusCode ?? 0;
}

async function page(): Promise<Follower> {
  const follower = new Follower();
  await follower.open(board.url);
  return follower;
}

test("a page that begins late has fifteen minutes of history of every node", async () => {
  await until(async () => {
    const early = await page();
    const whole = await until(() => early.fleet, "the whole fleet");
    early.close();
    return whole.nodes.length === 4 && whole.nodes.every(({ reachable }) => reachable);
  }, "every node");
  const late = await page();
  const whole = await until(() => late.fleet, "the whole fleet");
  expect(whole.nodes).toHaveLength(4);
  for (const row of whole.nodes) expect(row.samples.length).toBeGreaterThan(890);
  expect(whole.fleetName).toBe("synthetic");
  late.close();
});

test("no target of a request ends it", async () => {
  const targets = [
    "//",
    "//[",
    "//evil.example:99999/",
    "http://[::1",
    "*",
    "?",
    "/%zz",
    "/\\..\\",
  ];
  const statuses = await Promise.all(targets.map(statusOf));
  expect(statuses).toEqual([400, 400, 400, 400, 400, 400, 200, 404]);
  expect(await statusOf("/")).toBe(200);
});

test("events of nodes are at the page, in the order of their telling", async () => {
  const follower = await page();
  await until(() => follower.fleet, "the whole fleet");
  const told: string[] = [];
  for (let round = 0; round < 10; round += 1) {
    const message = `told ${round}`;
    fleet.child.tell({ tell: fleet.nodes[round % 4]?.name, message });
    await fleet.child.line("done");
    await until(
      () => follower.messages.some((row) => row.type === "event" && row.event.message === message),
      message,
    );
    told.push(message);
  }
  const shown = follower.messages.flatMap((row) =>
    row.type === "event" && told.includes(row.event.message) ? [row.event.message] : [],
  );
  expect(shown).toEqual(told);
  follower.close();
});

test("a lost gateway's place is taken, and a lost node stays with its reason", async () => {
  const follower = await page();
  const whole = await until(() => follower.fleet, "the whole fleet");
  expect(whole.gateway.address).toBe(fleet.address);
  const lost = fleet.nodes[0];
  fleet.child.tell({ silence: lost?.name });
  const message = await until(
    () => follower.messages.find((row) => row.type === "gateway"),
    "another gateway",
  );
  expect(message).toMatchObject({ gateway: { waitingFor: "", fault: "" } });
  expect(message.type === "gateway" && message.gateway.address).not.toBe(fleet.address);
  await until(
    () =>
      follower.messages.find(
        (row) =>
          row.type === "node" &&
          row.node.nodeId === lost?.nodeId &&
          row.node.liveness === "dead" &&
          !row.node.reachable &&
          row.node.unreachableReason !== "",
      ),
    "the dead node",
  );
  fleet.child.tell({ revive: lost?.name });
  await until(
    () =>
      follower.messages.find(
        (row) => row.type === "history" && row.node.nodeId === lost?.nodeId && row.node.reachable,
      ),
    "its return",
  );
  follower.close();
});

test("foreign hosts, origins and methods are refused at the door", async () => {
  const { port } = new URL(board.url);
  const asked = (path: string, terms: Asking): Promise<number> => status(board.url, path, terms);
  const json = { "content-type": "application/json" };
  expect(await asked("events", { headers: { host: "evil.example" } })).toBe(421);
  expect(
    await asked("plan", {
      method: "POST",
      headers: { ...json, origin: "http://evil.example" },
      body: "{}",
    }),
  ).toBe(403);
  expect(
    await asked("plan", { method: "POST", headers: { "content-type": "text/plain" }, body: "{}" }),
  ).toBe(415);
  expect(await asked("plan", { method: "DELETE" })).toBe(405);
  expect(await asked("leave", { method: "POST", headers: json, body: "{}" })).toBe(404);
  expect(await asked("../../package.json", {})).toBe(404);
  const own = { ...json, origin: `http://127.0.0.1:${port}` };
  expect(await asked("plan", { method: "POST", headers: own, body: "[]" })).toBe(400);
  const answer = await fetch(board.url);
  expect(answer.headers.get("content-security-policy")).toContain("script-src 'self'");
  expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
});

interface Asking {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
}

/** `fetch` would write the Host header itself, and the path anew. */
async function status(url: string, path: string, terms: Asking): Promise<number> {
  const { hostname, port } = new URL(url);
  const { method = "GET", headers = {}, body } = terms;
  const asked = request({ hostname, port, path: `/${path}`, method, headers });
  asked.end(body);
  const [response] = (await once(asked, "response")) as [IncomingMessage];
  response.destroy();
  return response.statusCode ?? 0;
}

test("a request that makes no sense is refused by the field's name", async () => {
  const body = JSON.stringify({ verifierModel: "tiny", contextTokens: -1, kvStrategy: "full" });
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${board.url}plan`, { method: "POST", headers, body });
  expect(answer.status).toBe(400);
  expect(await answer.json()).toMatchObject({
    reason: "BAD_REQUEST",
    message: expect.stringMatching(/contextTokens/) as string,
  });
});

test.each([
  ["its input", undefined],
  ["SIGTERM", "SIGTERM"],
] as const)("both programs end with %s, whoever is connected", async (_, signal) => {
  const nodes = await synthetic(2);
  const other = await dashboard(nodes.address);
  const follower = new Follower();
  await follower.open(other.url);
  await other.child.line("watching");
  expect(await other.child.end(signal)).toBe(0);
  expect(await nodes.child.end()).toBe(0);
  follower.close();
});

test("a synthetic fleet ends with its input, though a watch was cut off half-way", async () => {
  const nodes = await synthetic(1, "--quiet");
  await cutWatch(nodes.address);
  expect(await nodes.child.end()).toBe(0);
});

test("a command line that is none is refused", async () => {
  await expect(dashboard("nowhere")).rejects.toThrow("without saying ready");
  await expect(dashboard(fleet.address, "--host", "0.0.0.0")).rejects.toThrow("without saying");
});
