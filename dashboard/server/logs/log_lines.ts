/** Lines of a node's log, as structlog writes them: JSON, or columns for a terminal. Pure. */

import type { LogLevel, LogLine } from "../../shared/messages";

const COLUMNS = /^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?Z) \[(\w+) *\] (.*)$/;

/** What all lines of a node say. */
const SAID_ELSEWHERE = new Set(["timestamp", "level", "event", "node", "exception"]);

const LEVELS: Readonly<Record<string, LogLevel>> = {
  debug: "info",
  info: "info",
  warning: "warning",
  warn: "warning",
  error: "error",
  exception: "error",
  critical: "error",
};

/** Reads lines in their order: one that is of no such kind belongs to the one before. */
export class LogReader {
  #number = 0;
  #at = 0;
  #level: LogLevel = "info";

  read(text: string): LogLine {
    const told = fromJson(text) ?? fromColumns(text);
    this.#number += 1;
    if (told !== undefined) {
      this.#at = Number.isNaN(told.at) ? this.#at : told.at;
      this.#level = told.level;
    }
    const { at, level } = { at: this.#at, level: this.#level };
    return { number: this.#number, at, level, text: told?.text ?? text };
  }
}

function fromJson(text: string): Omit<LogLine, "number"> | undefined {
  if (!text.startsWith("{")) return undefined;
  let told: Record<string, unknown>;
  try {
    told = JSON.parse(text) as Record<string, unknown>;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return undefined;
  }
  const more = Object.entries(told)
    .filter(([name]) => !SAID_ELSEWHERE.has(name))
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  const fault = told["exception"] === undefined ? "" : `\n${String(told["exception"])}`;
  return {
    at: Date.parse(String(told["timestamp"])),
    level: levelOf(told["level"]),
    text: [String(told["event"] ?? ""), ...more].join("  ") + fault,
  };
}

function fromColumns(text: string): Omit<LogLine, "number"> | undefined {
  const parts = COLUMNS.exec(text);
  if (parts === null) return undefined;
  return { at: Date.parse(parts[1]!), level: levelOf(parts[2]), text: parts[3]!.trimEnd() };
}

function levelOf(name: unknown): LogLevel {
  return LEVELS[String(name)] ?? "info";
}
