/**
 * The page while it is written: a synthetic fleet, the dashboard's process, and
 * the page's sources with changes as they are saved.
 *
 * node dev.mjs [--nodes 12] [--seed 1] [--node HOST:PORT] [--port 5173]
 * With --node a real fleet is shown, and no synthetic one is made.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { build, createServer } from "vite";

const { values } = parseArgs({
  options: {
    nodes: { type: "string", default: "12" },
    seed: { type: "string", default: "1" },
    node: { type: "string" },
    port: { type: "string", default: "5173" },
  },
});
/** What the page asks of the dashboard's process. */
const ROUTES = [
  "/events",
  "/plan",
  "/generate",
  "/logs",
  "/close",
  "/end",
  "/rights",
  "/load",
  "/unload",
  "/fit",
];
const here = fileURLToPath(new URL(".", import.meta.url));
process.chdir(here);

for (const mode of values.node === undefined ? ["server", "synthetic"] : ["server"]) {
  await build({ configFile: "vite.process.config.ts", mode, logLevel: "warn" });
}
const address = values.node ?? (await synthetic());
const ready = await start("dist/server/main.mjs", [
  "--end-with-input",
  "--node",
  address,
  "--page",
  "page",
]);
const target = new URL(ready.url).origin;
const proxied = { target, changeOrigin: true, headers: { origin: target } };
const vite = await createServer({
  configFile: "vite.config.ts",
  server: {
    host: "127.0.0.1",
    port: Number(values.port),
    proxy: Object.fromEntries(ROUTES.map((route) => [route, proxied])),
  },
});
await vite.listen();
vite.printUrls();

async function synthetic() {
  const folder = fileURLToPath(new URL("../engine/shipped/tiny", import.meta.url));
  const { nodes, seed } = values;
  const args = ["--nodes", nodes, "--seed", seed, "--model-folder", folder];
  return (await start("dist/synthetic/main.mjs", args)).address;
}

/** Starts a program of this folder; answers its first line. */
async function start(program, args) {
  const child = spawn(process.execPath, [program, ...args], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  child.once("exit", (code) => process.exit(code ?? 1));
  const [line] = await once(createInterface({ input: child.stdout }), "line");
  return JSON.parse(line);
}
