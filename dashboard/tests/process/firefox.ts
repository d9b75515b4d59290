import { existsSync } from "node:fs";

import { firefox, type Browser } from "playwright-core";

const PLACES = [
  "/usr/bin/firefox-esr",
  "/usr/bin/firefox",
  "/snap/bin/firefox",
  "/Applications/Firefox.app/Contents/MacOS/firefox",
];
/** What a context cannot be told over BiDi: that it is dark, and that nothing is to move. */
const LOOK = { "ui.systemUsesDarkTheme": 1, "ui.prefersReducedMotion": 1 };

/** A Firefox of this machine: FIREFOX_PATH, or where systems have it; undefined without one. */
export function firefoxPath(): string | undefined {
  return process.env["FIREFOX_PATH"] ?? PLACES.find((place) => existsSync(place));
}

/**
 * The Firefox at `path`, as it is published, over WebDriver BiDi.
 *
 * Playwright from 1.65 on asks each context for a command that Firefox 153, Debian's, does not know.
 */
export async function launchFirefox(path: string): Promise<Browser> {
  return firefox.launch({ channel: "moz-firefox", executablePath: path, firefoxUserPrefs: LOOK });
}
