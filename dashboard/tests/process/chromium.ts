import { existsSync } from "node:fs";

import { chromium, type Browser } from "playwright-core";

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
/** Without its windows it does the same with half the processor's time. */
const PLACES = [
  "/usr/bin/chromium-headless-shell",
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
];

/** A browser of this machine: CHROMIUM_PATH, or where Linux distributions have it. */
export async function launch(): Promise<Browser> {
  const named = process.env["CHROMIUM_PATH"];
  const path = named ?? PLACES.find((place) => existsSync(place));
  if (path === undefined) {
    throw new Error("Chromium is missing: apt-get install chromium, or set CHROMIUM_PATH.");
  }
  return chromium.launch({ executablePath: path, args: FLAGS });
}
