/** Logs of the nodes of this machine, as pages follow them. */

import { setTimeout as pause } from "node:timers/promises";

import { LIMITS } from "../../shared/limits";
import { LOG_LIMIT } from "../../shared/log";
import type { LogMessage } from "../../shared/messages";
import { Fields } from "../http/fields";
import { Refused } from "../problem";
import { LogReader } from "./log_lines";
import { LogTail } from "./log_tail";

/** Milliseconds between two looks at a file. */
const LOOK_MS = 250;

export class Logs {
  readonly #nodeAt: (address: string) => string;
  #files: Readonly<Record<string, string>> = {};
  #followed = 0;

  /** `nodeAt` answers the id of the node at host:port; empty where none is known. */
  constructor(nodeAt: (address: string) => string) {
    this.#nodeAt = nodeAt;
  }

  /** The files that nodes of this machine log to, by their address, host:port. */
  tell(files: Readonly<Record<string, string>>): void {
    this.#files = files;
  }

  /**
   * Tells which file the node logs to, then its lines as they are written, until `signal`
   * aborts. The page names a node; which file that is, only who started this process says.
   * Throws Refused.
   */
  async *follow(
    body: Record<string, unknown>,
    signal: AbortSignal,
  ): AsyncGenerator<LogMessage, void, undefined> {
    const nodeId = new Fields(body).text("nodeId", 64);
    if (this.#followed >= LIMITS.logs) {
      const words = `${LIMITS.logs} logs are being followed: close one first.`;
      throw new Refused(503, "TOO_MANY_REQUESTS", words);
    }
    const path = this.#fileOf(nodeId);
    if (path === "") {
      yield { type: "file", path };
      return;
    }
    this.#followed += 1;
    try {
      yield* this.#read(path, signal);
    } finally {
      this.#followed -= 1;
    }
  }

  #fileOf(nodeId: string): string {
    const known = Object.entries(this.#files).find(([address]) => this.#nodeAt(address) === nodeId);
    return known?.[1] ?? "";
  }

  async *#read(path: string, signal: AbortSignal): AsyncGenerator<LogMessage, void, undefined> {
    const tail = await opened(path);
    const reader = new LogReader();
    try {
      yield { type: "file", path };
      while (!signal.aborted) {
        const lines = (await tail.lines()).map((line) => reader.read(line));
        if (lines.length > 0) yield { type: "lines", lines: lines.slice(-LOG_LIMIT) };
        await waited(signal);
      }
    } finally {
      await tail.close();
    }
  }
}

/** Waits until the next look; sooner when `signal` aborts. */
async function waited(signal: AbortSignal): Promise<void> {
  try {
    await pause(LOOK_MS, undefined, { signal });
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

async function opened(path: string): Promise<LogTail> {
  try {
    return await LogTail.of(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === undefined) throw error;
    throw new Refused(403, "UNAVAILABLE", `${path} cannot be opened (${code}).`);
  }
}
