import { Client, SessionNotFound } from "@kakeya/runtime";
import { textCodec } from "@kakeya/runtime/text";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test, vi } from "vitest";

import { eventData } from "../../page/state/event_data";
import type { ChatMessage, ChatRequest, FitView, FleetView, PlanView } from "../../shared/messages";
import { OnePage } from "../browser/page";
import { launch } from "../process/chromium";
import { dashboard, type Dashboard } from "../process/dashboard";
import { Follower } from "../process/follower";
import { FLEET, RealFleet, TINY, type Agent } from "../process/real_fleet";
import { until } from "../process/until";

let fleet: RealFleet;
let verifier: Agent;
let proposer: Agent;
let board: Dashboard;
let client: Client;
let browser: Browser;
let one: OnePage;

beforeAll(async () => {
  fleet = await RealFleet.create();
  proposer = await fleet.join("board-proposer", "proposer=ngram");
  verifier = await fleet.join("board-verifier", "verifier=tiny");
  // What the dashboard asks `fleet` is asked of this fleet, and nothing of the person's own.
  for (const [name, value] of Object.entries(fleet.environment)) vi.stubEnv(name, value);
  [browser, board] = await Promise.all([
    launch(),
    dashboard(verifier.address, `--fleet-command=${FLEET}`),
  ]);
  one = new OnePage(browser, board.url);
  client = new Client(verifier.address);
}, 180_000);

afterAll(async () => {
  await browser?.close();
  await client?.close();
  await board?.child.end();
  await fleet.end();
  vi.unstubAllEnvs();
});

const PROMPT = "def parse_header(line):\n    ";
const REQUEST: ChatRequest = {
  sessionKey: "",
  model: "tiny",
  mode: "text",
  system: "",
  turns: [{ role: "user", content: PROMPT }],
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

async function generate(request: ChatRequest): Promise<ChatMessage[]> {
  const response = await post("generate", request);
  expect(response.status).toBe(200);
  const messages: ChatMessage[] = [];
  if (response.body === null) return messages;
  for await (const data of eventData(response.body)) {
    messages.push(JSON.parse(data) as ChatMessage);
  }
  return messages;
}

function openedOf(messages: readonly ChatMessage[]): Extract<ChatMessage, { type: "opened" }> {
  // On a busy machine it may be told before how far the prompt is read.
  const opened = messages.find((message) => message.type === "opened");
  if (opened === undefined) throw new Error(JSON.stringify(messages[0]));
  return opened;
}

function textOf(messages: readonly ChatMessage[]): string {
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

test("an answer's text is what the SDK streams, with its drafted tokens", async () => {
  const messages = await generate(REQUEST);
  expect(openedOf(messages)).toMatchObject({ nodeId: verifier.nodeId });
  expect(messages.at(-1)).toMatchObject({ type: "done", generatedTokenCount: 48 });
  const codec = await textCodec(client, "tiny");
  const session = await client.createSession("tiny", {
    speculation: "off",
    stopTokenIds: [...codec.stopTokenIds],
  });
  await session.append(codec.encode(PROMPT));
  const { tokenIds } = await session.generate({ maxTokens: 48 }).completion();
  await session.close();
  const detokenizer = codec.detokenizer({ skipSpecialTokens: true });
  expect(textOf(messages)).toBe(detokenizer.push(tokenIds) + detokenizer.flush());
  const drafted = messages.map((row) => (row.type === "tokens" ? row.drafted : 0));
  const done = messages.at(-1);
  const accepted = done?.type === "done" ? done.acceptedCount : -1;
  expect(drafted.reduce((sum, count) => sum + count, 0)).toBe(accepted);
});

test("a conversation goes on where it was, forks where it is another, shows and closes", async () => {
  const follower = new Follower();
  await follower.open(board.url);
  const chat = { ...REQUEST, mode: "chat" as const, maxTokens: 8 };
  const said = (...contents: string[]): ChatRequest["turns"] =>
    contents.map((content, index) => ({ role: index % 2 === 0 ? "user" : "assistant", content }));
  const first = await generate({ ...chat, system: "Be brief.", turns: said("Say a word.") });
  const opened = openedOf(first);
  expect(opened.keptTokenCount).toBe(0);
  const { sessionKey } = opened;
  const going = { ...chat, system: "Be brief.", sessionKey };
  const answer = textOf(first);
  const next = openedOf(await generate({ ...going, turns: said("Say a word.", answer, "More.") }));
  expect(next.sessionKey).toBe(sessionKey);
  // All that was said before is held, or all but an end that the template writes otherwise.
  expect(next.keptTokenCount).toBeGreaterThanOrEqual(opened.historyLength);
  // Another question in the place of the second, and the first answer once more.
  const edited = openedOf(
    await generate({ ...going, turns: said("Say a word.", answer, "Less.") }),
  );
  expect(edited.keptTokenCount).toBeGreaterThanOrEqual(opened.historyLength);
  const again = await generate({ ...going, turns: said("Say a word.") });
  expect(openedOf(again).keptTokenCount).toBe(opened.historyLength);
  expect(textOf(again)).toBe(answer);
  const { sessionId } = openedOf(again);
  await until(
    () =>
      follower.messages.find(
        (row) =>
          row.type === "session" &&
          row.session.sessionId === sessionId &&
          row.session.label === "dashboard chat" &&
          row.session.generatedTokenCount >= 8,
      ),
    "the session on the page",
  );
  await post("close", { sessionKey });
  const ids: string[] = [];
  for await (const info of client.sessions()) ids.push(info.sessionId);
  expect(ids).not.toContain(sessionId);
  // The page has the conversation: it goes on in a new session.
  const anew = openedOf(await generate({ ...going, turns: said("Say a word.", answer, "More.") }));
  expect([anew.keptTokenCount, anew.sessionKey === sessionKey]).toEqual([0, false]);
  await post("close", { sessionKey: anew.sessionKey });
  follower.close();
});

test("a model is loaded and unloaded from the page, as the node permits and says", async () => {
  const { page, complaints } = await one.open("models");
  await page.getByRole("button", { name: "Load a model" }).click();
  await page.getByLabel("Model", { exact: true }).fill("ngram");
  await page.getByRole("radio", { name: "Proposer" }).check({ force: true });
  await page.getByLabel("On", { exact: true }).selectOption({ label: verifier.name });
  await page.getByRole("button", { name: "Load", exact: true }).click();
  const card = page.getByRole("article", { name: "ngram" });
  const holder = card.getByRole("listitem").filter({ hasText: verifier.name });
  await holder.waitFor();
  const offers = async (): Promise<string[]> =>
    (await client.fleet.node()).card.models.map(({ modelId }) => modelId);
  expect(await offers()).toContain("ngram");
  await holder.getByRole("button", { name: /^Unload/ }).click();
  await holder.getByRole("button", { name: "Unload", exact: true }).click();
  await holder.waitFor({ state: "detached" });
  expect(await offers()).not.toContain("ngram");
  // What cannot be had is told by name, with its mend.
  await page.getByLabel("Model", { exact: true }).fill("no-such-model");
  await page.getByRole("radio", { name: "Verifier" }).check({ force: true });
  await page.getByRole("button", { name: "Load", exact: true }).click();
  await page.getByText("no-such-model").nth(1).waitFor();
  await page
    .getByText(/not a shipped one/)
    .first()
    .waitFor();
  expect(complaints.list).toEqual([]);
});

test(
  "a model is copied from the page to another node's disk, and removed from there",
  { tags: "wide" },
  async () => {
    const loaded = await client.fleet.loadModel(await fleet.copied(TINY, "copied")).wait();
    const { page, complaints } = await one.open("models");
    const card = page.getByRole("article", { name: "copied", exact: true });
    await card.getByRole("button", { name: "Copy to a disk" }).click();
    const targets = card.getByLabel("Copy to", { exact: true }).locator("option");
    expect(await targets.allTextContents()).toEqual([proposer.name]);
    await card.getByRole("button", { name: "Copy", exact: true }).click();
    const copy = card.getByRole("list", { name: "Copies on disks" }).getByRole("listitem");
    await copy.getByText(/^7\.\d+ MiB · /).waitFor();
    await page.getByText(`from 1 node: ${verifier.name}`).waitFor();
    const target = new Client(proposer.address);
    const [stored] = await target.fleet.storedModels();
    expect(stored).toMatchObject({ modelId: "copied", isWhole: true });
    expect(stored?.sourceNames).toEqual([verifier.name]);
    await copy.getByRole("button", { name: "Remove the copy of copied" }).click();
    await copy.getByRole("button", { name: "Remove", exact: true }).click();
    await card.getByText("none yet").waitFor();
    expect(await target.fleet.storedModels()).toEqual([]);
    await target.close();
    await client.fleet.unloadModel(loaded.offer.modelId);
    expect(complaints.list).toEqual([]);
  },
);

test(
  "where a model fits is what `fleet fit` says of the machine that both nodes run on",
  { tags: "wide" },
  async () => {
    const shown = (await (await post("fit", { model: "tiny" })).json()) as FitView;
    expect(shown.machines).toHaveLength(1);
    const [machine] = shown.machines;
    expect(new Set(machine?.nodeIds)).toEqual(new Set([verifier.nodeId, proposer.nodeId]));
    expect(machine).toMatchObject({ fits: true });
    expect(shown.weightBytes).toBeGreaterThan(0);
    const missing = await post("fit", { model: "--help" });
    expect(missing.status).toBe(422);
    expect(await missing.json()).toMatchObject({ reason: "MODEL_NOT_FOUND" });
  },
);

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
  const { page } = await one.open("sessions");
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
  // It is closed from its own page, and its client is told so.
  await page.getByRole("link", { name: "a long answer" }).click();
  await page.getByRole("button", { name: "Close", exact: true }).click();
  await page.getByRole("button", { name: "Close it" }).click();
  await page.getByRole("main").getByText("closed", { exact: true }).first().waitFor();
  await expect(session.info()).rejects.toThrow(SessionNotFound);
  await page.goBack();
  const row = page.getByRole("row").filter({ hasText: "a long answer" });
  await row.getByText(/closed/i).waitFor({ timeout: 5000 });
});

test(
  "a chat on the page streams what the SDK gives, and is there after a reload",
  { tags: "wide" },
  async () => {
    const { page, complaints } = await one.open("chat");
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByRole("radio", { name: "Plain text" }).check({ force: true });
    await page.getByLabel("Most tokens").fill("16");
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("Ask tiny").fill(PROMPT);
    await page.keyboard.press("Enter");
    const answer = page.locator(".answer").first();
    await answer.getByText(/16 tokens/).waitFor();
    const codec = await textCodec(client, "tiny");
    const session = await client.createSession("tiny", {
      speculation: "off",
      stopTokenIds: [...codec.stopTokenIds],
    });
    await session.append(codec.encode(PROMPT));
    const { tokenIds } = await session.generate({ maxTokens: 16 }).completion();
    await session.close();
    const expected = codec.decode(tokenIds, { skipSpecialTokens: true });
    await answer.getByRole("button", { name: "Mark drafted tokens" }).click();
    expect(await page.locator(".marked-text").textContent()).toBe(expected);
    await page.reload();
    await page.getByRole("button", { name: /^def parse_header/ }).click();
    await page
      .locator(".answer")
      .getByText(/16 tokens/)
      .waitFor();
    expect(complaints.list).toEqual([]);
  },
);

test("a killed node shows as dead once the fleet has found it out", async () => {
  const { page } = await one.open("");
  await page.getByText(proposer.name).first().waitFor();
  process.kill(proposer.child.pid, "SIGKILL");
  const row = page.locator("main").getByRole("row").filter({ hasText: proposer.name }).first();
  // Seven of its probe intervals, of a second each; the test's own time is the bound.
  await row.getByText(/dead/i).waitFor({ timeout: 25_000 });
}, 30_000);
