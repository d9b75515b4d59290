/** The Electron example as a person uses it, wherever its page is. */

import { fileURLToPath } from "node:url";

import { _electron, type Page } from "playwright-core";
import { expect } from "vitest";

const MAIN = fileURLToPath(new URL("../examples/dist/electron/main.js", import.meta.url));

/** Electron's program. Without it, which `make test-electron` brings, nothing is started. */
export const ELECTRON = process.env["ELECTRON_PATH"];

/** Starts the example in Electron, for the node at `address`; gives its page and its end. */
export async function electronExample(
  address: string,
): Promise<{ page: Page; close: () => Promise<void> }> {
  if (ELECTRON === undefined) throw new Error("ELECTRON_PATH is not set: make test-electron");
  // Chromium starts as root without its own sandbox alone.
  const words = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  const running = await _electron.launch({
    executablePath: ELECTRON,
    args: [...words, MAIN],
    env: { ...(process.env as Record<string, string>), KAKEYA_NODE: address },
  });
  return { page: await running.firstWindow(), close: () => running.close() };
}

/** Types `prompt`, and gives each state of the answer until it is `expected`, which it has to become. */
export async function asked(page: Page, prompt: string, expected: string): Promise<string[]> {
  await page.getByLabel("Prompt").fill(prompt);
  await page.evaluate(() => {
    const answer = document.querySelector("output");
    const states: string[] = [];
    Object.assign(window, { states });
    if (answer === null) throw new Error("the page has no answer");
    new MutationObserver(() => states.push(answer.textContent ?? "")).observe(answer, {
      childList: true,
    });
  });
  await page.getByRole("button", { name: "Generate" }).click();
  const answer = page.locator("output");
  await expect.poll(() => answer.textContent(), { timeout: 20_000 }).toBe(expected);
  return page.evaluate(() => (window as unknown as { states: string[] }).states);
}
