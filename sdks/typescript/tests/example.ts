/** Compiled examples, as processes. */

import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

import { expect } from "vitest";

/** Runs an example with this very runtime; gives what it wrote. */
export async function runExample(
  name: string,
  words: readonly string[],
  environment: Readonly<Record<string, string>>,
  input = "",
): Promise<string> {
  const path = fileURLToPath(new URL(`../examples/dist/${name}.js`, import.meta.url));
  const running = spawn(process.execPath, [path, ...words], {
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...process.env, ...environment },
  });
  const ended = new Promise((resolve) => running.once("exit", resolve));
  running.stdin.end(input);
  let out = "";
  let errors = "";
  running.stdout.setEncoding("utf8").on("data", (text: string) => (out += text));
  running.stderr.setEncoding("utf8").on("data", (text: string) => (errors += text));
  expect(await ended, errors).toBe(0);
  return out;
}
