/**
 * What `examples/electron` uses of Electron, over a page of Chromium: a stand-in, not Electron.
 *
 * The preload script runs in the page's own world, without a sandbox of its own, and messages are
 * JSON. `chromium` is where the windows open; `pages` are those that did.
 */

import { existsSync, readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

import { chromium, type Browser, type Page } from "playwright-core";

type Listener = (event: { sender: { send: Send } }, ...values: unknown[]) => Promise<unknown>;
type Send = (channel: string, ...values: unknown[]) => void;

const handlers = new Map<string, Listener>();
const leaving: (() => void)[] = [];

const FLAGS = ["--no-sandbox", "--allow-file-access-from-files"];
/** Without its windows it does the same with half the processor's time. */
const PLACES = [
  "/usr/bin/chromium-headless-shell",
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
];

/** A browser of this machine for the stand-in: CHROMIUM_PATH, or where Linux has it. */
export async function launchChromium(): Promise<Browser> {
  const path = process.env["CHROMIUM_PATH"] ?? PLACES.find((place) => existsSync(place));
  if (path === undefined) throw new Error("Chromium is missing: set CHROMIUM_PATH.");
  return chromium.launch({ executablePath: path, args: FLAGS });
}

/** What `require("electron")` gives a preload script: a function of the page. */
const RENDERER = `(() => {
  const listeners = new Map();
  window.standInSend = (channel, values) =>
    [...(listeners.get(channel) ?? [])].forEach((listener) => listener({}, ...values));
  return {
    contextBridge: { exposeInMainWorld: (name, api) => (window[name] = api) },
    ipcRenderer: {
      invoke: (channel, ...values) => window.standInInvoke(channel, values),
      on: (channel, listener) =>
        listeners.set(channel, (listeners.get(channel) ?? new Set()).add(listener)),
      off: (channel, listener) => listeners.get(channel)?.delete(listener),
    },
  };
})()`;

const sending: Promise<unknown>[] = [];

/** What the test gives the stand-in, and what it gives the test. */
export const standIn: { chromium?: Browser; pages: Page[]; quit(): Promise<void> } = {
  pages: [],
  /** Ends the example once it has answered, and its pages have heard it. Throws what went wrong. */
  async quit() {
    // An answer says more while it is waited for.
    for (const each of sending) await each;
    leaving.forEach((listener) => listener());
  },
};

export const app = {
  whenReady: async (): Promise<void> => undefined,
  on(event: string, listener: () => void): void {
    if (event === "before-quit") leaving.push(listener);
  },
  quit: (): void => void standIn.quit(),
};

export const ipcMain = {
  handle: (channel: string, listener: Listener): void => void handlers.set(channel, listener),
};

export class BrowserWindow {
  readonly #preload: string;

  constructor({ webPreferences }: { webPreferences: { preload: string } }) {
    this.#preload = readFileSync(webPreferences.preload, "utf8");
  }

  async loadFile(path: string): Promise<void> {
    if (standIn.chromium === undefined) throw new Error("the test gave no Chromium");
    const page = await standIn.chromium.newPage();
    const send: Send = (channel, ...values) =>
      void sending.push(
        page.evaluate(`standInSend(${JSON.stringify(channel)}, ${JSON.stringify(values)})`),
      );
    await page.exposeFunction("standInInvoke", (channel: string, values: unknown[]) => {
      const listener = handlers.get(channel);
      if (listener === undefined) throw new Error(`nobody handles ${channel}`);
      const answer = listener({ sender: { send } }, ...values);
      sending.push(answer);
      return answer;
    });
    await page.addInitScript(
      `((require, exports) => {${this.#preload}\n})(() => ${RENDERER}, {});`,
    );
    standIn.pages.push(page);
    await page.goto(pathToFileURL(path).href);
  }
}
