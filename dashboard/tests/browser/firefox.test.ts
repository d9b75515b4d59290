import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { dashboard, synthetic, type Dashboard, type SyntheticNodes } from "../process/dashboard";
import { firefoxPath, launchFirefox } from "../process/firefox";
import { open, type Complaints } from "./page";
import { violations } from "./rules";

const path = firefoxPath();
const WITHOUT = path === undefined ? ", left out: install firefox-esr, or set FIREFOX_PATH" : "";

// One page goes through the main views, as a person does: each browser and fleet takes seconds.
describe.skipIf(path === undefined)(`in Firefox${WITHOUT}`, { tags: "wide" }, () => {
  let browser: Browser;
  let context: BrowserContext;
  let page: Page;
  let complaints: Complaints;
  let fleet: SyntheticNodes;
  let board: Dashboard;

  beforeAll(async () => {
    fleet = await synthetic(3);
    [browser, board] = await Promise.all([launchFirefox(path ?? ""), dashboard(fleet.address)]);
    ({ page, context, complaints } = await open(browser, board.url, ""));
  });

  afterAll(async () => {
    await context?.close();
    await browser?.close();
    for (const each of [board, fleet]) await each?.child.end();
  });

  test("all nodes of the fleet show, dark and at rest as this machine wants it", async () => {
    const main = page.locator("main");
    for (const { name } of fleet.nodes) await main.getByText(name).first().waitFor();
    expect(await page.evaluate(`matchMedia("(prefers-color-scheme: dark)").matches`)).toBe(true);
    expect(await violations(page)).toEqual([]);
    expect(complaints.list).toEqual([]);
  });

  test("a chat by the keyboard: an answer with all its markdown, and one that is stopped", async () => {
    await page.getByRole("link", { name: "Chat" }).click();
    await page.getByLabel(/^Ask /).waitFor();
    // The field has the keyboard from the beginning.
    await page.keyboard.type("What decides?");
    await page.keyboard.press("Enter");
    const answer = page.locator(".answer");
    await answer.locator(".prose ol strong").waitFor();
    await answer.locator(".prose .code-block").getByText("def verify").waitFor();
    await answer.locator(".prose table").getByText("24 ms").waitFor();
    await page.getByRole("button", { name: "Send" }).waitFor();
    await page.keyboard.type("And then?");
    await page.keyboard.press("Enter");
    await page.locator(".prose").nth(1).waitFor();
    await page.keyboard.press("Escape");
    await answer.getByText("stopped").waitFor();
    expect(complaints.list).toEqual([]);
  });

  test("its session shows block by block and is closed; the chat is there after a reload", async () => {
    await page.getByRole("link", { name: "Block by block" }).first().click();
    const blocks = page.getByRole("region", { name: "Last blocks" }).getByRole("listitem");
    await blocks.filter({ hasText: "drafted tokens accepted" }).first().waitFor();
    await page.getByRole("button", { name: "Close", exact: true }).click();
    await page.getByRole("button", { name: "Close it" }).click();
    await page.getByRole("main").getByText("closed", { exact: true }).first().waitFor();
    await page.getByRole("link", { name: "Chat" }).click();
    await page.reload();
    await page.getByRole("button", { name: /^What decides\?/ }).click();
    await page.locator(".answer .prose table").waitFor();
    const questions = await page.locator(".question-text").allTextContents();
    expect(questions).toEqual(["What decides?", "And then?"]);
    expect(complaints.list).toEqual([]);
  });

  test("a model is loaded, served and unloaded", async () => {
    await page.getByRole("link", { name: "Models" }).click();
    await page.getByRole("button", { name: "Load a model" }).click();
    const name = fleet.nodes[0]?.name ?? "";
    await page.getByLabel("On", { exact: true }).selectOption({ label: name });
    await page.getByLabel("Model", { exact: true }).fill("smol");
    await page.keyboard.press("Enter");
    const card = page.getByRole("article", { name: "smol", exact: true });
    const holder = card.getByRole("listitem").filter({ hasText: name });
    await holder.getByRole("button", { name: /^Unload/ }).click();
    await holder.getByRole("button", { name: "Unload", exact: true }).click();
    await card.getByText("No node serves it now.").waitFor();
    expect(complaints.list).toEqual([]);
  });
});
