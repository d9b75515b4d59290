/** Rows of a node's log: its lines, with its events among them. Pure. */

import type { EventView, LogLine, Severity } from "../../shared/messages";

export interface LogRow {
  key: string;
  at: number;
  level: Severity;
  /** Whether the fleet is told it, too. */
  isEvent: boolean;
  text: string;
  mend: string;
}

/** What is looked for. */
export interface LogFilter {
  least: Severity;
  text: string;
}

const RANK: Readonly<Record<Severity, number>> = { info: 0, warning: 1, error: 2 };

/** Oldest first. Lines keep their order, events stand behind the lines of their moment. */
export function logRows(
  lines: readonly LogLine[],
  events: readonly EventView[],
  { least, text }: LogFilter,
): LogRow[] {
  const words = text.trim().toLowerCase();
  const fits = (row: LogRow): boolean =>
    RANK[row.level] >= RANK[least] &&
    (words === "" || `${row.text} ${row.mend}`.toLowerCase().includes(words));
  const told = events.map(rowOfEvent);
  const rows: LogRow[] = [];
  let next = 0;
  for (const line of lines) {
    while (next < told.length && told[next]!.at < line.at) rows.push(told[next++]!);
    rows.push(rowOfLine(line));
  }
  return [...rows, ...told.slice(next)].filter(fits);
}

function rowOfLine({ number, at, level, text }: LogLine): LogRow {
  return { key: `line ${number}`, at, level, isEvent: false, text, mend: "" };
}

function rowOfEvent({ key, at, severity, kind, message, mend }: EventView): LogRow {
  return { key, at, level: severity, isEvent: true, text: `${kind}  ${message}`, mend };
}
