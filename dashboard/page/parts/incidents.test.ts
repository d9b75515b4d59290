import { expect, test } from "vitest";

import type { EventView } from "../../shared/messages";
import { eventView } from "../../tests/views";
import { eventLines } from "./event_lines";
import { eventRows, isIncident, linesOf, mendOf, nameTold, severityOf, wordsOf } from "./incidents";

/** `teller` tells at `second` of `subject`. */
function told(teller: string, second: number, kind: string, subject: string): EventView {
  const severity = kind === "PEER_DEAD" ? "error" : "warning";
  const mend = kind === "PEER_DEAD" ? "Start it." : "";
  return { ...eventView(teller, second * 1000), kind, subjectNodeId: subject, severity, mend };
}

/** Each row: its severity, its words, and of how many events it is. */
function rows(...events: EventView[]): string[] {
  return eventRows(eventLines(events)).map((row) => {
    const words = isIncident(row)
      ? `${row.ownerId}${wordsOf(row, (nodeId) => nodeId).replace(/since .*/, "since then.")}`
      : row.kind;
    return `${severityOf(row)}: ${words} (${linesOf(row).length})`;
  });
}

test("who was away 25 s is one row, whatever others told of it meanwhile", () => {
  expect(
    rows(
      told("v", 99, "PROPOSER_DROPPED", "mini-1"),
      told("v", 100, "PEER_SUSPECT", "mini-1"),
      told("w", 101, "PEER_SUSPECT", "mini-1"),
      told("v", 105, "PEER_DEAD", "mini-1"),
      told("v", 106, "LINK_DEMOTED", "mini-1"),
      told("v", 110, "MODEL_LOADED", ""),
      told("w", 125, "PEER_JOINED", "mini-1"),
      told("v", 126, "PEER_JOINED", "mini-1"),
      told("v", 130, "PROPOSER_BACK", "mini-1"),
    ),
  ).toEqual(["info: mini-1 was away 25 s. (6)", "warning: MODEL_LOADED (1)"]);
});

test("what lasts says since when, and what mends it", () => {
  const events = [told("v", 100, "PEER_SUSPECT", "mini-1"), told("v", 105, "PEER_DEAD", "mini-1")];
  expect(rows(...events)).toEqual(["error: mini-1 is dead since then. (2)"]);
  const [row] = eventRows(events.map((event) => ({ ...event, message: "mini-1 is gone." })));
  expect(isIncident(row!) && mendOf(row)).toBe("Start it.");
  expect(isIncident(row!) && nameTold(row)).toBe("mini-1");
});

test("what comes again within a minute is counted; later it is another", () => {
  const flap = (second: number) => [
    told("v", second, "LINK_DEMOTED", "m"),
    told("v", second + 8, "LINK_PROMOTED", "m"),
  ];
  expect(rows(...flap(100), ...flap(130), ...flap(300))).toEqual([
    "info: m’s link with v was slower 2 times, 16 s in all. (4)",
    "info: m’s link with v was slower for 8 s. (2)",
  ]);
});

test("one event stays what it is, and troubles between others stay apart", () => {
  expect(
    rows(
      told("v", 100, "PEER_JOINED", "a"),
      told("v", 101, "PEER_LEFT", "b"),
      told("v", 102, "PROPOSER_DROPPED", "c"),
      told("w", 103, "PROPOSER_DROPPED", "c"),
      told("v", 104, "PROPOSER_BACK", "c"),
    ),
  ).toEqual([
    "warning: PEER_JOINED (1)",
    "warning: PEER_LEFT (1)",
    "info: c did not draft for v for 2 s. (2)",
    "warning: PROPOSER_DROPPED (1)",
  ]);
});

test("a session's proposer and archive are its own: who is back may be another than was lost", () => {
  const of = (session: string, event: EventView): EventView => ({ ...event, sessionId: session });
  expect(
    rows(
      of("s", told("v", 100, "PROPOSER_DROPPED", "a")),
      of("t", told("v", 101, "PROPOSER_DROPPED", "a")),
      of("t", told("v", 103, "PROPOSER_BACK", "b")),
      of("s", told("v", 109, "PROPOSER_BACK", "b")),
      of("s", told("v", 120, "ARCHIVE_LOST", "a")),
      of("s", told("v", 123, "ARCHIVE_REBUILT", "b")),
    ),
  ).toEqual([
    "info: a did not draft for v for 9 s. (2)",
    "info: a did not draft for v for 2 s. (2)",
    "info: v had no archive for a session for 3 s. (2)",
  ]);
});

test("what is meant to go so is no trouble", () => {
  const meant = (event: EventView): EventView => ({ ...event, severity: "info" });
  expect(
    rows(
      meant(told("v", 100, "PROPOSER_DROPPED", "a")),
      meant(told("v", 101, "LINK_DEMOTED", "a")),
      meant(told("v", 102, "LINK_PROMOTED", "a")),
      meant(told("v", 103, "PROPOSER_BACK", "a")),
    ),
  ).toHaveLength(4);
});

test("no event is lost or told twice, and rows keep the order of their times, whatever happens", () => {
  const seed = 20_251;
  console.info(`seed ${seed}`);
  let state = seed;
  const pick = <Of>(all: readonly Of[]): Of => {
    state = (state * 48_271) % 2_147_483_647;
    return all[state % all.length]!;
  };
  const kinds = ["PEER_SUSPECT", "PEER_DEAD", "PEER_JOINED", "LINK_DEMOTED", "LINK_PROMOTED"];
  const more = ["PROPOSER_DROPPED", "BREAKER_CLOSED", "MODEL_LOADED", "PEER_LEFT"];
  const events = Array.from({ length: 600 }, (_, at) =>
    told(pick(["v", "w"]), at * 4, pick([...kinds, ...more]), pick(["a", "b", "c"])),
  );
  const lines = eventLines(events);
  const found = eventRows(lines);
  expect(
    found
      .flatMap(linesOf)
      .map(({ key }) => key)
      .sort(),
  ).toEqual(lines.map(({ key }) => key).sort());
  expect(new Set(found.map(({ key }) => key)).size).toBe(found.length);
  const times = found.map(({ at }) => at);
  expect(times).toEqual([...times].sort((one, other) => one - other));
});
