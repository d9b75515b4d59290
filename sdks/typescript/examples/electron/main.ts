/**
 * Electron's main process: it holds the client, the page only sees text.
 *
 * Start with `electron main.js` and KAKEYA_NODE=HOST:PORT in the environment.
 */

import { fileURLToPath } from "node:url";

import { app, BrowserWindow, ipcMain } from "electron";

import { Client } from "@kakeya/runtime";
import { textCodec } from "@kakeya/runtime/text";

const MODEL = "tiny";
const ANSWER_TOKENS = 200;

const client = new Client(process.env["KAKEYA_NODE"] ?? "127.0.0.1:7600");
let running: AbortController | undefined;

ipcMain.handle("generate", async (event, prompt) => {
  running?.abort();
  const { signal } = (running = new AbortController());
  const codec = await textCodec(client, MODEL, { signal });
  const stopTokenIds = codec.stopTokenIds;
  await using session = await client.createSession(MODEL, { stopTokenIds, resume: true, signal });
  await session.append(codec.encode(String(prompt)), { signal });
  const text = codec.detokenizer({ skipSpecialTokens: true });
  for await (const tokens of session.generate({ maxTokens: ANSWER_TOKENS, signal })) {
    event.sender.send("text", text.push(tokens.tokenIds));
  }
  event.sender.send("text", text.flush());
});

ipcMain.handle("stop", async () => {
  running?.abort();
});

app.on("window-all-closed", () => app.quit());
app.on("before-quit", () => void client.close());

await app.whenReady();
const window = new BrowserWindow({
  width: 800,
  height: 600,
  webPreferences: {
    preload: fileURLToPath(new URL("preload.cjs", import.meta.url)),
    contextIsolation: true,
    sandbox: true,
  },
});
await window.loadFile(fileURLToPath(new URL("index.html", import.meta.url)));
