import { expect, test } from "vitest";

import type { EventView } from "../../shared/messages";
import { eventView } from "../../tests/views";
import { eventLines, tellersOf } from "./event_lines";

/** `teller` tells at `second` that `subject` did what `kind` says. */
function told(teller: string, second: number, kind: string, subject: string): EventView {
  return { ...eventView(teller, second * 1000), kind, subjectNodeId: subject };
}

function drawn(...events: EventView[]): string[] {
  return eventLines(events).map(
    (line) => `${line.at / 1000} ${line.kind} ${line.subjectNodeId} ${tellersOf(line).join("")}`,
  );
}

test("a death that three nodes tell is one line, at the time of the first", () => {
  expect(
    drawn(
      told("a", 1, "PEER_DEAD", "x"),
      told("b", 2, "PEER_DEAD", "x"),
      told("c", 9, "PEER_DEAD", "x"),
      told("a", 9, "PEER_DEAD", "y"),
    ),
  ).toEqual(["1 PEER_DEAD x abc", "9 PEER_DEAD y a"]);
});

test("a node that is lost, comes back and is lost again has a line for each", () => {
  const [suspect, joined] = ["PEER_SUSPECT", "PEER_JOINED"];
  expect(
    drawn(
      told("a", 1, suspect, "x"),
      told("b", 1.5, suspect, "x"),
      told("a", 2, joined, "x"),
      told("b", 2.5, joined, "x"),
      told("a", 4, suspect, "x"),
      told("a", 5, joined, "x"),
    ),
  ).toEqual([`1 ${suspect} x ab`, `2 ${joined} x ab`, `4 ${suspect} x a`, `5 ${joined} x a`]);
});

test("what is told long after is news, but not that a node which is there has joined", () => {
  expect(
    drawn(
      told("a", 1, "PEER_JOINED", "x"),
      told("b", 600, "PEER_JOINED", "x"),
      told("b", 900, "PEER_JOINED", "x"),
      told("a", 1000, "PEER_DEAD", "x"),
      told("b", 1100, "PEER_DEAD", "x"),
    ),
  ).toEqual(["1 PEER_JOINED x ab", "1000 PEER_DEAD x a", "1100 PEER_DEAD x b"]);
});

test("what a node tells of its own links, or of nobody, stays its own; lines of one teller are its events", () => {
  const events = [
    told("a", 1, "LINK_DEMOTED", "x"),
    told("b", 1, "LINK_DEMOTED", "x"),
    told("a", 2, "MODEL_LOADED", ""),
    told("b", 2, "MODEL_LOADED", ""),
  ];
  const lines = eventLines(events);
  expect(lines).toHaveLength(4);
  lines.forEach((line, at) => expect(line).toBe(events[at]));
});
