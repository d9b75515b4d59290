import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { launch } from "../process/chromium";
import { dashboard, synthetic, type Dashboard, type SyntheticNodes } from "../process/dashboard";
import { OnePage } from "./page";
import { violations } from "./rules";

let browser: Browser;
/** Of every four nodes the last is not ours: it refuses what others do. */
let fleet: SyntheticNodes;
let board: Dashboard;
let one: OnePage;

beforeAll(async () => {
  fleet = await synthetic(4, "--quiet");
  [browser, board] = await Promise.all([
    launch(),
    dashboard(fleet.address, `--fleet-command=${process.execPath}`, `--fleet-command=${FIT}`),
  ]);
  one = new OnePage(browser, board.url);
});

afterAll(async () => {
  await browser?.close();
  for (const each of [board, fleet]) await each?.child.end();
});

/** A command that answers as `fleet fit` does. */
const FIT = new URL("fit_command.mjs", import.meta.url).pathname;

function card(page: Page, model: string) {
  return page.getByRole("article", { name: model, exact: true });
}

test("a model's buttons are there where they work, and a load is seen from its begin to its end", async () => {
  const { page, complaints } = await one.open("models");
  const [ours, , , foreign] = fleet.nodes;
  const qwen = card(page, "qwen3-8b");
  const rowOf = (name = ""): ReturnType<Page["locator"]> =>
    qwen.getByRole("listitem").filter({ hasText: name });
  await rowOf(ours?.name)
    .getByRole("button", { name: /^Unload/ })
    .waitFor();
  expect(await rowOf(foreign?.name).getByRole("button").count()).toBe(0);
  await page.getByRole("button", { name: "Load a model" }).click();
  expect(await page.getByLabel("On", { exact: true }).textContent()).not.toContain(foreign?.name);
  await page.getByLabel("On", { exact: true }).selectOption({ label: ours?.name ?? "" });
  await page.getByLabel("Model", { exact: true }).fill("smol");
  await page.keyboard.press("Enter");
  await page.getByRole("meter", { name: /load of smol/ }).waitFor();
  await card(page, "smol")
    .getByText(ours?.name ?? "")
    .waitFor();
  expect(await violations(page)).toEqual([]);
  // One that failed says why, until it is put away.
  await page.getByLabel("Model", { exact: true }).fill("missing");
  await page.keyboard.press("Enter");
  await page.getByText(/name one of the hub/).waitFor();
  await page.getByRole("button", { name: "Put away: load of missing" }).click();
  await page.getByText(/name one of the hub/).waitFor({ state: "detached" });
  const holder = card(page, "smol").getByRole("listitem");
  await holder.getByRole("button", { name: /^Unload/ }).click();
  await holder.getByRole("button", { name: "Unload", exact: true }).click();
  await card(page, "smol").getByText("No node serves it now.").waitFor();
  expect(complaints.list).toEqual([]);
});

test("where a model fits is what `fleet fit` says, and it is loaded there", async () => {
  const { page } = await one.open("models", { theme: "light" });
  const tiny = card(page, "tiny");
  await tiny.getByRole("button", { name: "Where does it fit?" }).click();
  const fits = tiny.getByRole("list", { name: "Where tiny would fit" }).getByRole("listitem");
  await fits.first().waitFor();
  expect(await fits.count()).toBe(4);
  // The command says that it fits on all but the second machine.
  const [first, second, third, foreign] = fleet.nodes.map(({ name }) =>
    fits.filter({ hasText: name }),
  );
  await first?.getByRole("button", { name: "Load here" }).waitFor();
  await second?.getByText("It takes 9 GiB").waitFor();
  // Where it is served, or where nothing may be loaded from here, there is nothing to press.
  for (const row of [second, third, foreign]) {
    expect(await row?.getByRole("button", { name: "Load here" }).count()).toBe(0);
  }
  expect(await violations(page)).toEqual([]);
});

test("a model is copied to a node that lacks it, by keyboard, and its progress is seen", async () => {
  const { page, complaints } = await one.open("models");
  const [studio, mini2, mini3] = fleet.nodes.map(({ name }) => name);
  const tiny = card(page, "tiny");
  await tiny.getByText("none yet").waitFor();
  await tiny.getByRole("button", { name: "Copy to a disk" }).press("Enter");
  const target = tiny.getByLabel("Copy to", { exact: true });
  // Where it is served, and where nothing is copied to from here, it is not offered.
  expect(await target.locator("option").allTextContents()).toEqual([mini2, studio]);
  await target.selectOption({ label: studio ?? "" });
  await tiny.getByRole("button", { name: "Copy", exact: true }).press("Enter");
  const row = page.getByRole("listitem").filter({ has: page.getByRole("meter") });
  await row.getByText(`from 1 node: ${mini3}`).waitFor();
  await row.getByText(/MiB\/s/).waitFor();
  expect(await violations(page)).toEqual([]);
  await row.getByText("done").waitFor();
  const copy = tiny.getByRole("list", { name: "Copies on disks" }).getByRole("listitem");
  await copy
    .filter({ hasText: studio ?? "" })
    .getByText(/^7\.25 MiB · /)
    .waitFor();
  expect(await target.locator("option").allTextContents()).toEqual([mini2]);
  // A question is answered no by Escape, and the focus is where it was.
  const remove = copy.getByRole("button", { name: "Remove the copy of tiny" });
  await remove.press("Enter");
  await copy.getByRole("group", { name: "Remove the copy?" }).waitFor();
  expect(await violations(page)).toEqual([]);
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.activeElement?.textContent?.startsWith("Remove"));
  await remove.press("Enter");
  await copy.getByRole("button", { name: "Remove", exact: true }).press("Enter");
  await tiny.getByText("none yet").waitFor();
  expect(complaints.list).toEqual([]);
});

test("a copy that fails says why with its mend, one that is given up is gone, a served one stays", async () => {
  const { page } = await one.open("models", { width: 390 });
  const [studio, mini2, mini3, foreign] = fleet.nodes.map(({ name }) => name);
  const copyTo = async (model: string, name = ""): Promise<void> => {
    const form = card(page, model);
    await form.getByRole("button", { name: "Copy to a disk" }).click();
    await form.getByLabel("Copy to", { exact: true }).selectOption({ label: name });
    await form.getByRole("button", { name: "Copy", exact: true }).click();
  };
  const rowOf = (model: string): ReturnType<Page["locator"]> =>
    page.getByRole("listitem").filter({ has: page.getByRole("meter", { name: `of ${model},` }) });
  const cut = (): Promise<number> =>
    page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  await card(page, "qwen3-8b")
    .getByText(/4\.70 GiB/)
    .first()
    .waitFor();
  await copyTo("qwen3-8b", mini3);
  const failed = rowOf("qwen3-8b");
  await failed.getByText(/the disk has less room/).waitFor();
  await failed.getByText("fleet rm").waitFor();
  expect(await cut()).toBe(0);
  await page.getByRole("button", { name: "Put away: copy of qwen3-8b" }).click();
  await failed.waitFor({ state: "detached" });
  await copyTo("qwen3-8b-dflash", studio);
  const given = rowOf("qwen3-8b-dflash");
  await given.getByRole("button", { name: "Give up the copy of qwen3-8b-dflash" }).click();
  await given.getByRole("button", { name: "Give up", exact: true }).click();
  await given.waitFor({ state: "detached" });
  await card(page, "qwen3-8b-dflash").getByText("none yet").waitFor();
  const copies = card(page, "qwen3-8b")
    .getByRole("list", { name: "Copies on disks" })
    .getByRole("listitem");
  const removeAt = async (name = ""): Promise<void> => {
    const copy = copies.filter({ hasText: name });
    await copy.getByRole("button", { name: /^Remove the copy/ }).click();
    await copy.getByRole("button", { name: "Remove", exact: true }).click();
  };
  // On the disk of a node that is not ours nothing is removed from here.
  expect(
    await copies
      .filter({ hasText: foreign ?? "" })
      .getByRole("button")
      .count(),
  ).toBe(0);
  await removeAt(studio);
  await copies.getByText("MODEL_IN_USE").waitFor();
  expect(await violations(page)).toEqual([]);
  expect(await cut()).toBe(0);
  await removeAt(mini2);
  await copies.filter({ hasText: mini2 ?? "" }).waitFor({ state: "detached" });
  expect(await copies.count()).toBe(2);
});
