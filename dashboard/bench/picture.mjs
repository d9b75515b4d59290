/**
 * Pictures of pages of a running dashboard. Prints nothing.
 *
 * node dashboard/bench/picture.mjs URL FOLDER NAME=VIEW... [--theme dark] [--width 1440]
 * [--height 900] [--ask QUESTION]
 *
 * With a question, each of the views is a chat, which is asked it and answers first.
 */

import { parseArgs } from "node:util";

import { chromium } from "playwright-core";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    theme: { type: "string", default: "dark" },
    width: { type: "string", default: "1440" },
    height: { type: "string", default: "900" },
    ask: { type: "string" },
    chromium: { type: "string", default: process.env.CHROMIUM_PATH ?? "/usr/bin/chromium" },
  },
});
const [url, folder, ...pictures] = positionals;
/** Milliseconds until fonts, charts and the topology's first labels are at rest. */
const REST = 2500;

const browser = await chromium.launch({
  executablePath: values.chromium,
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"],
});
const page = await browser.newPage({
  viewport: { width: Number(values.width), height: Number(values.height) },
  colorScheme: values.theme,
});
for (const picture of pictures) {
  const [name, view] = picture.split("=");
  await page.goto(`${url}#/${view}`);
  if (values.ask !== undefined) {
    await page.getByLabel(/^Ask /).fill(values.ask);
    await page.keyboard.press("Enter");
    await page.locator(".facts-line").waitFor();
  }
  await page.waitForTimeout(REST);
  await page.screenshot({ path: `${folder}/${name}.png` });
}
await browser.close();
