import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { launch } from "../process/chromium";
import { dashboard, synthetic, type Dashboard, type SyntheticNodes } from "../process/dashboard";
import { open } from "./page";
import { violations } from "./rules";

let browser: Browser;
/** Of every four nodes the last is not ours: it refuses what others do. */
let fleet: SyntheticNodes;
let board: Dashboard;

beforeAll(async () => {
  fleet = await synthetic(4, "--quiet");
  [browser, board] = await Promise.all([
    launch(),
    dashboard(fleet.address, `--fleet-command=${process.execPath}`, `--fleet-command=${FIT}`),
  ]);
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
  const { page, context, complaints } = await open(browser, board.url, "models");
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
  await context.close();
});

test("where a model fits is what `fleet fit` says, and it is loaded there", async () => {
  const { page, context } = await open(browser, board.url, "models", { theme: "light" });
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
  await context.close();
});
