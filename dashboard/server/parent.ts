/**
 * What the program that started this one says on the standard input, one JSON line
 * each: {"nodes": ["host:port", ...]} are all nodes that run on this machine now, {"logs":
 * {"host:port": "path"}} the files that they log to, and {"access": ...}, a `ToldAccess`,
 * says as whom nodes are called. Keys travel here because
 * others can read a command line, and programs that this one starts its environment.
 */

import { createInterface } from "node:readline";
import type { Readable } from "node:stream";

import type { ToldAccess } from "./access";

/** What hears of the lines. */
export interface Listener {
  nodes(addresses: readonly string[]): void;
  logs(files: Readonly<Record<string, string>>): void;
  access(told: ToldAccess): void;
  /** The input ended. */
  ended(): void;
}

interface Line {
  nodes?: string[];
  logs?: Record<string, string>;
  access?: ToldAccess;
}

/** Tells `listener` of each such line, and of the end of the input. */
export function heed(input: Readable, listener: Listener): void {
  const lines = createInterface({ input });
  lines.on("line", (text) => {
    const line = JSON.parse(text) as Line;
    if (line.access !== undefined) listener.access(line.access);
    if (line.logs !== undefined) listener.logs(line.logs);
    if (line.nodes !== undefined) listener.nodes(line.nodes);
  });
  lines.once("close", () => listener.ended());
}
