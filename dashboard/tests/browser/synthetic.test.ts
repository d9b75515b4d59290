import { appendFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { launch } from "../process/chromium";
import { dashboard, synthetic, type Dashboard, type SyntheticNodes } from "../process/dashboard";
import { until } from "../process/until";
import { OnePage } from "./page";
import { shifts, violations, watchShifts } from "./rules";

let browser: Browser;

beforeAll(async () => {
  browser = await launch();
});

afterAll(async () => {
  await browser?.close();
});

/** A fleet and who shows it, which ends with its tests: what works takes a processor's time. */
describe("a fleet that works", () => {
  let fleet: SyntheticNodes;
  let board: Dashboard;
  let one: OnePage;

  beforeAll(async () => {
    fleet = await synthetic(12);
    board = await dashboard(fleet.address);
    one = new OnePage(browser, board.url);
  });

  afterAll(async () => {
    await one?.close();
    for (const each of [board, fleet]) await each?.child.end();
  });

  /** Every kind of page: all views, a node with sessions, and what is not there. */
  function views(): [string, string][] {
    const node = fleet.nodes[0]?.nodeId ?? "";
    return [
      ["fleet", ""],
      ["node", `node/${node}`],
      ["node-gone", "node/nobody"],
      ["sessions", "sessions"],
      ["plan", "plan"],
      ["chat", "chat"],
      ["models", "models"],
      ["events", "events"],
      ["not-found", "nowhere"],
    ];
  }

  // Colours depend on the theme, places on the width: each of either has its turn in one pairing.
  // A view in which something is wrong leaves its picture, all of them with SCREENSHOTS=1.
  describe.each([
    [390, "light", []],
    [820, "dark", ["wide"]],
    [1440, "dark", []],
  ] as const)("every view, %i px wide and %s", (width, theme, tags) => {
    test(
      "all nodes by name, no rule broken, nothing cut off",
      { tags: [...tags], timeout: 120_000 },
      async () => {
        const found: string[] = [];
        const { page, complaints } = await one.open("", { width, theme });
        for (const { name } of fleet.nodes) await page.getByText(name).first().waitFor();
        const look = async (name: string): Promise<void> => {
          const before = found.length;
          const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          if (over > 0) found.push(`${name} is ${over} px wider than its window`);
          // The rules do not depend on the width but for what a phone folds away, and one dark
          // theme is wide.
          if (width !== 1440) {
            found.push(...(await violations(page)).map((rule) => `${name}: ${rule}`));
          }
          if (found.length > before || process.env["SCREENSHOTS"] !== undefined) {
            await page.screenshot({ path: `screenshots/${name}-${width}-${theme}.png` });
          }
        };
        for (const [name, view] of views()) {
          await go(page, view);
          // The first session begins some time after its node.
          if (view === "sessions") await page.locator("a.row-link").first().waitFor();
          await look(name);
        }
        await go(page, "sessions");
        await page.locator("a.row-link").first().click();
        await page.getByRole("img", { name: /^Forwards by the time/ }).waitFor();
        await look("session");
        found.push(...complaints.list);
        expect(found).toEqual([]);
      },
    );
  });

  test("nothing jumps while nodes and sessions tell, and events come in", async () => {
    const { page } = await one.open("", { motion: true });
    await shown(page, fleet);
    const [first] = fleet.nodes;
    for (const view of ["", `node/${first?.nodeId}`, "sessions", "events"]) {
      await go(page, view);
      await watchShifts(page);
      // Above what was there, and the second while the first still moves.
      for (const message of [`One in ${view}`, `Two in ${view}`]) {
        fleet.child.tell({ tell: first?.name, message });
        if (view !== "sessions") await page.getByText(message).waitFor();
      }
      const before = Date.now();
      // Each node says once a second what it does.
      await until(() => Date.now() - before > 1200, "more than a second of telling");
      const seen = await shifts(page);
      const sum = seen.reduce((before, { value }) => before + value, 0);
      expect(sum, `${view}: ${JSON.stringify(seen, null, 1)}`).toBeLessThan(0.01);
    }
  }, 60_000);
});

describe("a fleet in which nothing happens by itself, for what is told to it", () => {
  let fleet: SyntheticNodes;
  let board: Dashboard;
  let one: OnePage;

  beforeAll(async () => {
    fleet = await synthetic(2, "--quiet");
    board = await dashboard(fleet.address);
    one = new OnePage(browser, board.url);
  });

  afterAll(async () => {
    for (const each of [board, fleet]) await each?.child.end();
  });

  test("a page says what it waits for: any node, and what to start; a lost process, and when it asks", async () => {
    const early = await dashboard("");
    const { page, complaints } = await new OnePage(browser, early.url).open("");
    await page.getByRole("status").getByText("Waiting for a node of this machine.").waitFor();
    await page.locator("main").getByText("fleet join --serve verifier=tiny").waitFor();
    expect(await page.locator("main .command").count()).toBe(3);
    expect(await violations(page)).toEqual([]);
    early.child.tell({ nodes: [fleet.address] });
    await shown(page, fleet);
    expect(complaints.list).toEqual([]);
    const { port } = new URL(early.url);
    await early.child.end();
    const again = page.getByRole("button", { name: "Try now" });
    await again.waitFor();
    await page.getByText(/^Retrying/).waitFor();
    await again.focus();
    await page.keyboard.press("Enter");
    const back = await dashboard(fleet.address, "--port", port);
    await again.waitFor({ state: "detached" });
    await page.close();
    await back.child.end();
  });

  test("where no session is open a phone shows what opens one, by the rules", async () => {
    const { page, complaints } = await one.open("sessions", { width: 390, theme: "light" });
    const command = page.locator("main .command code");
    await command.waitFor();
    expect(await command.textContent()).toContain("fleet generate");
    await page.evaluate(() => document.fonts.ready);
    const hidden = await command.evaluate((shown) => shown.scrollWidth - shown.clientWidth);
    expect(hidden).toBeGreaterThan(0);
    expect(await violations(page)).toEqual([]);
    expect(complaints.list).toEqual([]);
  });

  test("what nobody told yet is not said to be missing", async () => {
    const { page } = await one.open("sessions");
    let tell = (): void => undefined;
    const told = new Promise<void>((resolve) => (tell = resolve));
    await page.route("**/events", async (route) => {
      await told;
      await route.continue();
    });
    await page.reload();
    await page.getByRole("navigation", { name: "Views" }).waitFor();
    expect(await page.locator("main").textContent()).toBe("");
    tell();
    await page.locator("main").getByText("No session is open").waitFor();
  });

  test("events that come in while somebody reads wait until they are asked for", async () => {
    const { page } = await one.open("");
    const name = fleet.nodes[0]?.name ?? "";
    await page.getByText(name).first().waitFor();
    // Where there is room a machine says how busy its cores are.
    await page
      .locator(".machine-way", { hasText: /CPU \d+ %$/ })
      .first()
      .waitFor();
    await go(page, "events");
    const rows = page.locator("main .event");
    fleet.child.tell({ tell: name, message: "Heard before." });
    await rows.first().getByText("Heard before.").waitFor();
    await rows.first().hover();
    fleet.child.tell({ tell: name, message: "Heard meanwhile." });
    const waiting = page.getByRole("button", { name: "Show 1 newer event" });
    await waiting.waitFor();
    expect(await rows.first().textContent()).toContain("Heard before.");
    await waiting.click();
    await rows.first().getByText("Heard meanwhile.").waitFor();
    fleet.child.tell({ tell: name, message: "Heard at last." });
    await waiting.waitFor();
    await page.locator("h1").hover();
    await rows.first().getByText("Heard at last.").waitFor();
  });

  test("who died shows as dead, then was away: one entry, unfolded by keys, which a filter keeps whole", async () => {
    const { page, complaints } = await one.open("events");
    const name = fleet.nodes[1]?.name ?? "";
    await page.getByText(`${name} joined the fleet.`).waitFor();
    fleet.child.tell({ silence: name });
    const told = / is dead since | does not answer | was away /;
    const entry = page.locator("main .event").filter({ hasText: name }).filter({ hasText: told });
    await entry.getByText(/ is dead since /).waitFor();
    await go(page, "");
    const row = page.locator("main").getByRole("row").filter({ hasText: name }).first();
    await row.getByText(/dead/i).waitFor();
    fleet.child.tell({ revive: name });
    await row.getByText(/dead/i).waitFor({ state: "detached" });
    await go(page, "events");
    // Once or, on a busy machine, several times.
    await entry.getByText(/ was away \d/).waitFor();
    await page.getByRole("radio", { name: "Errors", exact: true }).focus();
    await page.keyboard.press("Space");
    await page.locator("main .event").nth(1).waitFor({ state: "detached" });
    await entry.locator("summary").focus();
    await page.keyboard.press("Enter");
    await entry.getByText("is dead: it did not refute in time.").waitFor();
    await entry.getByText("answers again.").waitFor();
    expect(await violations(page)).toEqual([]);
    expect(complaints.list).toEqual([]);
  });

  test("a node's log on its page, by the keyboard: as it is written, by level and by words", async () => {
    const [node] = fleet.nodes;
    const folder = await mkdtemp(join(tmpdir(), "log-"));
    const path = join(folder, "node.log");
    const at = (second: number): string => `2026-11-24T02:07:${second}.000000Z`;
    await writeFile(path, `${at(10)} [info     ] begun\n${at(11)} [error    ] no_disk   path=/x\n`);
    const { page, complaints } = await one.open(`node/${node?.nodeId}`);
    const log = page.getByRole("region", { name: "Log", exact: true });
    const rows = log.locator("li");
    const show = log.getByRole("button", { name: "Show" });
    await show.focus();
    await page.keyboard.press("Enter");
    // Its events alone, and why.
    await log.getByText("These are its events").waitFor();
    await log.getByText(`${node?.name} joined the fleet.`).waitFor();
    await page.keyboard.press("Enter");
    board.child.tell({ logs: { [node?.address ?? ""]: path } });
    await page.keyboard.press("Enter");
    await rows.filter({ hasText: "begun" }).waitFor();
    await appendFile(path, `${at(12)} [warning  ] slow_disk\n`);
    await rows.filter({ hasText: "slow_disk" }).waitFor();
    expect(await violations(page)).toEqual([]);
    await page.keyboard.press("Tab");
    await page.keyboard.press("ArrowRight");
    await rows.filter({ hasText: "begun" }).waitFor({ state: "detached" });
    await rows.filter({ hasText: "slow_disk" }).waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.type("SLOW");
    await rows.filter({ hasText: "no_disk" }).waitFor({ state: "detached" });
    await page.keyboard.type("x");
    await log.getByText("No line fits").waitFor();
    expect(complaints.list).toEqual([]);
    await rm(folder, { recursive: true });
  });

  test("round trips are those of the node in focus; the chart's span is chosen by the keyboard", async () => {
    const { page } = await one.open("");
    await shown(page, fleet);
    const chart = page.getByRole("img", {
      name: /tokens a second now, at most .* in the last 2 min/,
    });
    await chart.waitFor();
    const [gateway, other] = fleet.nodes.map(({ name }) =>
      page.getByRole("list", { name: "Nodes" }).getByRole("listitem").filter({ hasText: name }),
    );
    await gateway!.locator(".machine-way").getByText("gateway").waitFor();
    // How busy the machine is changes meanwhile.
    const [way = ""] = ((await other!.locator(".machine-way").textContent()) ?? "").split(" · ");
    expect(way).toMatch(/ ms$/);
    await other!.getByRole("link").focus();
    await gateway!.locator(".machine-way").getByText(way).waitFor();
    await page.getByRole("radio", { name: "2 min" }).focus();
    await page.keyboard.press("ArrowRight");
    await page
      .getByRole("img", { name: /tokens a second now, .* in the last 15 minutes/ })
      .waitFor();
  });

  test("all views are reached by the keyboard alone", async () => {
    const { page } = await one.open("");
    await shown(page, fleet);
    const reached = new Set<string>();
    for (let step = 0; step < 60 && reached.size < 6; step += 1) {
      await page.keyboard.press("Tab");
      const target = await page.evaluate(() => document.activeElement?.getAttribute("href") ?? "");
      if (/^#\/(chat|models|sessions|plan|events)?$/.test(target)) reached.add(target);
    }
    expect(reached.size).toBe(6);
    await page.locator('a[href="#/events"]').first().focus();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: /events/i }).waitFor();
  });
});

/** Waits until the page shows the fleet. */
async function shown(page: Page, fleet: SyntheticNodes): Promise<void> {
  await page
    .getByText(fleet.nodes[0]?.name ?? "")
    .first()
    .waitFor();
}

/** Goes to `view`, and waits until it was drawn: what its coming moved is over then. */
async function go(page: Page, view: string): Promise<void> {
  await page.evaluate(
    (hash) =>
      new Promise<void>((drawn) => {
        const after = (): number =>
          requestAnimationFrame(() => requestAnimationFrame(() => drawn()));
        if (location.hash === hash) {
          after();
          return;
        }
        addEventListener("hashchange", after, { once: true });
        location.hash = hash;
      }),
    `#/${view}`,
  );
  await page.locator("main h1").first().waitFor();
}
