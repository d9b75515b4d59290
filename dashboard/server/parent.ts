/**
 * What the program that started this one says on the standard input, one JSON line
 * each: {"nodes": ["host:port", ...]} are all nodes that run on this machine now.
 */

import { createInterface } from "node:readline";
import type { Readable } from "node:stream";

/** Calls `nodes` with each such line, and `ended` when the input ends. */
export function heed(
  input: Readable,
  nodes: (addresses: readonly string[]) => void,
  ended: () => void,
): void {
  const lines = createInterface({ input });
  lines.on("line", (text) => nodes((JSON.parse(text) as { nodes: string[] }).nodes));
  lines.once("close", ended);
}
