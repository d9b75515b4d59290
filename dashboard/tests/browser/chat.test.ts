import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { launch } from "../process/chromium";
import { dashboard, synthetic, type Dashboard, type SyntheticNodes } from "../process/dashboard";
import { until } from "../process/until";
import { OnePage } from "./page";
import { violations } from "./rules";

let browser: Browser;
let fleet: SyntheticNodes;
let board: Dashboard;
let one: OnePage;

beforeAll(async () => {
  fleet = await synthetic(3, "--quiet");
  [browser, board] = await Promise.all([launch(), dashboard(fleet.address)]);
  one = new OnePage(browser, board.url);
});

afterAll(async () => {
  await browser?.close();
  for (const each of [board, fleet]) await each?.child.end();
});

const composer = (page: Page): ReturnType<Page["locator"]> => page.getByLabel(/^Ask /);

async function fewTokens(page: Page, count: number): Promise<void> {
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Most tokens").fill(String(count));
  await page.keyboard.press("Tab");
  await page.getByRole("button", { name: "Settings" }).click();
}

test("a chat by the keyboard alone: ask, stop, edit the last question", async () => {
  const { page, complaints } = await one.open("chat");
  await composer(page).waitFor();
  // The field has the keyboard from the beginning.
  await page.keyboard.type("What is this?");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("And that?");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Stop" }).waitFor();
  await page.locator(".prose").first().waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Send" }).waitFor();
  await page.locator(".answer").getByText("stopped").waitFor();
  expect(await page.locator(".question-text").textContent()).toBe("What is this?\nAnd that?");
  await composer(page).focus();
  await page.keyboard.press("ArrowUp");
  const editor = page.getByLabel("The question in other words");
  await editor.waitFor();
  await page.keyboard.press("Escape");
  await editor.waitFor({ state: "detached" });
  // The keyboard is back where the next question is typed.
  await page.keyboard.press("ArrowUp");
  await editor.waitFor();
  await page.keyboard.type(" Now!");
  await page.keyboard.press("Enter");
  await page.getByText("And that? Now!").waitFor();
  await page.locator(".prose").first().waitFor();
  await page.keyboard.press("Escape");
  await page.locator(".answer").getByText("stopped").waitFor();
  expect(await page.locator(".turns > li").count()).toBe(2);
  expect(complaints.list).toEqual([]);
});

describe.each([
  [390, "light", []],
  [1440, "dark", ["wide"]],
] as const)("%i px wide, %s", (width, theme, tags) => {
  test("an answer and its marks break no rule", { tags: [...tags] }, async () => {
    const { page } = await one.open("chat", { width, theme });
    await composer(page).waitFor();
    await fewTokens(page, 40);
    await composer(page).fill("Say forty tokens.");
    await page.keyboard.press("Enter");
    await page.locator(".answer").getByText("40 tokens").waitFor();
    expect(await violations(page)).toEqual([]);
    await page.getByRole("button", { name: "Mark drafted tokens" }).click();
    await page.locator(".marked-text").waitFor();
    expect(await violations(page)).toEqual([]);
    if (width < 700) await page.getByRole("button", { name: "Chats" }).click();
    await page.getByRole("button", { name: /^Say forty tokens/ }).waitFor();
    expect(await violations(page)).toEqual([]);
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    expect(over).toBeLessThanOrEqual(0);
  });
});

test("chats are kept in the browser, each can be gone on with, and all are cleared", async () => {
  const { page } = await one.open("chat");
  await composer(page).waitFor();
  await fewTokens(page, 8);
  for (const question of ["The first one", "The second one"]) {
    await page.getByRole("button", { name: "New chat" }).first().click();
    await composer(page).fill(question);
    await page.keyboard.press("Enter");
    await page.locator(".answer").getByText("8 tokens").waitFor();
  }
  await page.reload();
  await page.getByRole("button", { name: /^The first one/ }).click();
  await page.locator(".answer").getByText("8 tokens").waitFor();
  // After a reload the tokens' bound is the usual one: it is stopped by hand.
  await composer(page).fill("And on");
  await page.keyboard.press("Enter");
  await page.locator(".prose").nth(1).waitFor();
  await page.keyboard.press("Escape");
  await page.locator(".answer").getByText("stopped").waitFor();
  const kept = (): Promise<number> =>
    page.evaluate(() => Object.keys(localStorage).filter((key) => key.includes("chat")).length);
  expect(await kept()).toBe(2);
  await page.getByRole("button", { name: "Clear" }).click();
  await page.getByRole("button", { name: "Delete all" }).click();
  await page
    .getByText(/^Ask qwen|^Ask tiny/)
    .first()
    .waitFor();
  expect(await kept()).toBe(0);
});

/** What a model may have said, as this browser keeps it. */
async function keep(page: Page, answer: string): Promise<void> {
  await page.evaluate((content) => {
    const turns = [
      { role: "user", content: "Hm" },
      { role: "assistant", content },
    ];
    const chat = { at: Date.now(), model: "tiny", system: "", turns };
    localStorage.setItem("kakeya-chat-hostile", JSON.stringify(chat));
  }, answer);
  await page.reload();
  await page.getByRole("button", { name: /^Hm/ }).click();
  await page.locator(".prose").waitFor();
}

test("what a model says is text: no markup of it runs, nothing is fetched, links are plain", async () => {
  const { page, complaints } = await one.open("chat");
  const asked: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  await composer(page).waitFor();
  const hostile = [
    "<script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    "<svg/onload=window.ran=1>",
    "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
    '<a href="javascript:window.ran=1">a</a> <style>*{display:none}</style>',
    "[click](javascript:window.ran=1) [data](data:text/html,x) [in](#/session/x)",
    "![pixel](https://evil.example/pixel.png)",
    "[good](https://good.example/a?b=c)",
    "**<b onmouseover=window.ran=1>bold</b>**",
    "```html\n<script>window.ran = 1</script>\n```",
    "| <img src=x onerror=window.ran=1> |\n|--|\n| x |",
    "# <script>window.ran=1</script>",
    "&lt;script&gt; &#x6A;avascript:",
  ].join("\n\n");
  await keep(page, hostile);
  expect(await page.evaluate(() => (window as { ran?: number }).ran)).toBeUndefined();
  const prose = page.locator(".prose");
  expect(await prose.locator("script, img, svg, iframe, style, [onerror]").count()).toBe(
    await prose.locator(".code-block svg").count(),
  );
  const links = await prose
    .locator("a")
    .evaluateAll((all) =>
      all.map((link) => [
        link.getAttribute("href"),
        link.getAttribute("rel"),
        link.getAttribute("target"),
      ]),
    );
  expect(links).toEqual([
    ["https://evil.example/pixel.png", "noopener noreferrer", "_blank"],
    ["https://good.example/a?b=c", "noopener noreferrer", "_blank"],
  ]);
  expect(await prose.textContent()).toContain("<script>window.ran = 1</script>");
  expect(asked.filter((url) => !url.startsWith(board.url))).toEqual([]);
  expect(complaints.list).toEqual([]);
  expect(await violations(page)).toEqual([]);
});

test("an answer that fails says why by name, and is asked again", async () => {
  const { page } = await one.open("chat");
  await composer(page).waitFor();
  await page.route("**/generate", (route) =>
    route.fulfill({
      status: 502,
      contentType: "application/json",
      body: JSON.stringify({ reason: "OUT_OF_KV_MEMORY", message: "No room.", mend: "Wait." }),
    }),
  );
  await composer(page).fill("Hello");
  await page.keyboard.press("Enter");
  await page.getByText("OUT_OF_KV_MEMORY").waitFor();
  await page.unroute("**/generate");
  await page.getByRole("button", { name: "Ask again" }).click();
  await until(async () => (await page.locator(".prose").count()) > 0, "an answer");
  await page.keyboard.press("Escape");
  await page.locator(".answer").getByText("stopped").waitFor();
  expect(await page.locator(".question-text").count()).toBe(1);
});
