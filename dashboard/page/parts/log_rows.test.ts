import { expect, test } from "vitest";

import type { LogLine, Severity } from "../../shared/messages";
import { eventView } from "../../tests/views";
import { logRows } from "./log_rows";

const line = (number: number, at: number, level: Severity, text: string): LogLine => ({
  ...{ number, at, level, text },
});
const LINES = [
  line(1, 1000, "info", "loading"),
  line(2, 3000, "warning", "slow_disk"),
  line(3, 3000, "warning", "  of a traceback"),
  line(4, 5000, "error", "failed"),
];
const EVENTS = [
  { ...eventView("n", 2000), kind: "MODEL_LOADED", message: "tiny is loaded." },
  { ...eventView("n", 6000), kind: "DRAINING", mend: "Wait for the DISK." },
];
const texts = (least: Severity, text = ""): string[] =>
  logRows(LINES, EVENTS, { least, text }).map((row) => row.text.trim());

test("events stand among the lines by their time, and none is lost", () => {
  expect(texts("info")).toEqual([
    "loading",
    "MODEL_LOADED  tiny is loaded.",
    "slow_disk",
    "of a traceback",
    "failed",
    "DRAINING",
  ]);
  expect(logRows([], EVENTS, { least: "info", text: "" })).toHaveLength(2);
  expect(logRows(LINES, [], { least: "info", text: "" })).toHaveLength(4);
});

test("a level and words narrow them, whatever their case, and a mend counts", () => {
  expect(texts("warning")).toEqual(["slow_disk", "of a traceback", "failed"]);
  expect(texts("error")).toEqual(["failed"]);
  expect(texts("info", " disk ")).toEqual(["slow_disk", "DRAINING"]);
  expect(texts("error", "disk")).toEqual([]);
});
