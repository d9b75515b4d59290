import { Client } from "@kakeya/runtime";
import { textCodec } from "@kakeya/runtime/text";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { eventData } from "../../page/state/event_data";
import type {
  FleetView,
  PlanView,
  PlaygroundMessage,
  PlaygroundRequest,
} from "../../shared/messages";
import { open } from "../browser/page";
import { launch } from "../process/chromium";
import { dashboard, type Dashboard } from "../process/dashboard";
import { Follower } from "../process/follower";
import { RealFleet, type Agent } from "../process/real_fleet";
import { until } from "../process/until";

let fleet: RealFleet;
let verifier: Agent;
let proposer: Agent;
let board: Dashboard;
let client: Client;
let browser: Browser;

beforeAll(async () => {
  fleet = await RealFleet.create();
  proposer = await fleet.join("board-proposer", "proposer=ngram");
  verifier = await fleet.join("board-verifier", "verifier=tiny");
  process.env["XDG_CACHE_HOME"] = fleet.environment["XDG_CACHE_HOME"];
  [browser, board] = await Promise.all([launch(), dashboard(verifier.address)]);
  client = new Client(verifier.address);
}, 180_000);

afterAll(async () => {
  await browser?.close();
  await client?.close();
  await board?.child.end();
  await fleet.end();
});

const REQUEST: PlaygroundRequest = {
  sessionKey: "",
  model: "tiny",
  mode: "text",
  prompt: "def parse_header(line):\n    ",
  maxTokens: 48,
  temperature: 0,
  speculation: "auto",
  kvStrategy: "sink_window",
};

async function post(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  return fetch(board.url + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    ...(signal === undefined ? {} : { signal }),
  });
}

async function generate(request: PlaygroundRequest): Promise<PlaygroundMessage[]> {
  const response = await post("generate", request);
  expect(response.status).toBe(200);
  const messages: PlaygroundMessage[] = [];
  if (response.body === null) return messages;
  for await (const data of eventData(response.body)) {
    messages.push(JSON.parse(data) as PlaygroundMessage);
  }
  return messages;
}

function textOf(messages: readonly PlaygroundMessage[]): string {
  return messages.flatMap((row) => (row.type === "tokens" ? row.pieces : [])).join("");
}

/** The fleet as a page that begins now gets it. */
async function look(): Promise<FleetView> {
  const follower = new Follower();
  await follower.open(board.url);
  const whole = await until(() => follower.fleet, "the whole fleet");
  follower.close();
  return whole;
}

test("the page's fleet is what the nodes tell of themselves", async () => {
  const whole = await until(async () => {
    const seen = await look();
    return seen.nodes.length === 2 && seen.nodes.every(({ reachable }) => reachable) && seen;
  }, "both nodes");
  for (const agent of [verifier, proposer]) {
    const own = new Client(agent.address);
    const node = await own.fleet.node();
    await own.close();
    const shown = whole.nodes.find(({ nodeId }) => nodeId === agent.nodeId);
    expect(shown).toMatchObject({
      name: agent.name,
      liveness: "alive",
      memoryTotalBytes: node.card.memoryTotalBytes,
      kvBudgetBytes: node.load.kvBudgetBytes,
      softwareVersion: node.card.softwareVersion,
      httpAddress: node.httpAddress,
    });
    expect(shown?.models.map(({ modelId }) => modelId)).toEqual(
      node.card.models.map(({ modelId }) => modelId),
    );
  }
});

test("the playground's text is what the SDK streams, with its drafted tokens", async () => {
  const messages = await generate(REQUEST);
  expect(messages[0]).toMatchObject({ type: "opened", nodeId: verifier.nodeId });
  expect(messages.at(-1)).toMatchObject({ type: "done", generatedTokenCount: 48 });
  const codec = await textCodec(client, "tiny");
  const session = await client.createSession("tiny", {
    speculation: "off",
    stopTokenIds: [...codec.stopTokenIds],
  });
  await session.append(codec.encode(REQUEST.prompt));
  const { tokenIds } = await session.generate({ maxTokens: 48 }).completion();
  await session.close();
  const detokenizer = codec.detokenizer({ skipSpecialTokens: true });
  expect(textOf(messages)).toBe(detokenizer.push(tokenIds) + detokenizer.flush());
  const drafted = messages.map((row) => (row.type === "tokens" ? row.drafted : 0));
  const done = messages.at(-1);
  const accepted = done?.type === "done" ? done.acceptedCount : -1;
  expect(drafted.reduce((sum, count) => sum + count, 0)).toBe(accepted);
});

test("a session goes on where it was, shows on the page, and closes", async () => {
  const follower = new Follower();
  await follower.open(board.url);
  const first = await generate({ ...REQUEST, mode: "chat", prompt: "Say a word.", maxTokens: 8 });
  const opened = first[0];
  if (opened?.type !== "opened") throw new Error(JSON.stringify(opened));
  const { sessionKey } = opened;
  const again = { ...REQUEST, sessionKey, prompt: "Another.", mode: "chat" as const, maxTokens: 8 };
  const second = await generate(again);
  expect(second[0]).toMatchObject({ type: "opened", sessionKey });
  // Where the template writes an answer otherwise than the model did, it is another one by now.
  const sessionId = second[0]?.type === "opened" ? second[0].sessionId : "";
  await until(
    () =>
      follower.messages.find(
        (row) =>
          row.type === "session" &&
          row.session.sessionId === sessionId &&
          row.session.label === "dashboard playground" &&
          row.session.generatedTokenCount >= 8,
      ),
    "the session on the page",
  );
  await post("close", { sessionKey });
  const ids: string[] = [];
  for await (const info of client.sessions()) ids.push(info.sessionId);
  expect(ids).not.toContain(sessionId);
  const gone = await post("generate", again);
  expect(gone.status).toBe(404);
  follower.close();
});

test("a page that goes away stops its generation", async () => {
  const left = new AbortController();
  const request = { ...REQUEST, maxTokens: 100_000, kvStrategy: "sink_window" as const };
  const response = await post("generate", request, left.signal);
  const reader = response.body?.getReader();
  await reader?.read();
  left.abort();
  await until(async () => (await client.fleet.node()).load.generatingCount === 0, "the stop");
});

test("the plan is the planner's, every rejected pair with its reason", async () => {
  const question = { verifierModel: "tiny", contextTokens: 1024, kvStrategy: "sink_window" };
  const shown = (await (await post("plan", question)).json()) as PlanView;
  const plan = await client.fleet.plan({ verifierModel: "tiny", contextTokens: 1024 });
  expect(shown.verifier.nodeId).toBe(plan.verifier.nodeId);
  expect(shown.rejections.map(({ reason }) => reason)).toEqual(
    plan.rejections.map(({ reason }) => reason),
  );
  const missing = await post("plan", { ...question, verifierModel: "nobody-serves-it" });
  expect(missing.status).toBe(502);
  expect(await missing.json()).toMatchObject({ reason: "MODEL_NOT_FOUND" });
});

test("a session that generates shows while it does", async () => {
  const { page, context } = await open(browser, board.url, "sessions");
  const session = await client.createSession("tiny", { clientLabel: "a long answer" });
  await session.append([10, 11, 12]);
  const left = new AbortController();
  const generating = session
    .generate({ maxTokens: 1500, signal: left.signal })
    .completion()
    .catch(() => undefined);
  await page.getByText("a long answer").first().waitFor({ timeout: 5000 });
  left.abort();
  await generating;
  await session.close();
  const row = page.getByRole("row").filter({ hasText: "a long answer" });
  await row.getByText(/closed/i).waitFor({ timeout: 5000 });
  await context.close();
});

test("the playground of the page streams the text that the SDK gives", async () => {
  const { page, context, complaints } = await open(browser, board.url, "playground");
  const main = page.getByRole("main");
  await main.getByRole("radio", { name: "Text" }).check({ force: true });
  await main.getByRole("textbox").first().fill(REQUEST.prompt);
  await main.getByLabel("Most tokens").fill("16");
  await main.getByRole("button", { name: /generate|send|run/i }).click();
  const answer = page.getByLabel("The answer's text");
  const codec = await textCodec(client, "tiny");
  const session = await client.createSession("tiny", {
    speculation: "off",
    stopTokenIds: [...codec.stopTokenIds],
  });
  await session.append(codec.encode(REQUEST.prompt));
  const { tokenIds } = await session.generate({ maxTokens: 16 }).completion();
  await session.close();
  const expected = codec.decode(tokenIds, { skipSpecialTokens: true }).trim();
  await until(async () => (await answer.textContent())?.includes(expected), expected);
  expect(complaints.list).toEqual([]);
  await context.close();
});

test("a killed node shows as dead once the fleet has found it out", async () => {
  const { page, context } = await open(browser, board.url, "");
  await page.getByText(proposer.name).first().waitFor();
  process.kill(proposer.child.pid, "SIGKILL");
  const row = page.locator("main").getByRole("row").filter({ hasText: proposer.name }).first();
  // Seven of its probe intervals, of a second each; the test's own time is the bound.
  await row.getByText(/dead/i).waitFor({ timeout: 25_000 });
  await context.close();
}, 30_000);
