/** What belongs together in the list of events: one trouble of one node, from its beginning to its end. Pure. */

import type { Severity } from "../../shared/messages";
import type { EventLine } from "./event_lines";
import { clockTime, duration } from "./format";

export type Trouble = "absence" | "link" | "drafts" | "archive";

/** Events of one trouble, in the order of their times; the key and the time are the first one's. */
export interface Incident {
  key: string;
  at: number;
  trouble: Trouble;
  /** Whose trouble it is. */
  ownerId: string;
  /** Who is told of, where the first event names one, and who tells. */
  subjectNodeId: string;
  nodeId: string;
  lines: readonly EventLine[];
  /** When it began, and ended; the last one is not over where `to` is undefined. */
  spells: readonly { from: number; to: number | undefined }[];
}

/** A row of the list. */
export type EventRow = EventLine | Incident;

const BEGINS: Readonly<Record<string, Trouble>> = {
  PEER_SUSPECT: "absence",
  PEER_DEAD: "absence",
  PEER_LEFT: "absence",
  LINK_DEMOTED: "link",
  PROPOSER_DROPPED: "drafts",
  BREAKER_OPENED: "drafts",
  ARCHIVE_LOST: "archive",
};
const ENDS: Readonly<Record<string, Trouble>> = {
  PEER_JOINED: "absence",
  LINK_PROMOTED: "link",
  PROPOSER_BACK: "drafts",
  BREAKER_CLOSED: "drafts",
  ARCHIVE_REBUILT: "archive",
};

/** Milliseconds before and after an absence within which other troubles with the node are its own. */
const NEAR_MS = 15_000;
/** Milliseconds after its end within which the same trouble is the same again. */
const AGAIN_MS = 60_000;

export function isIncident(row: EventRow): row is Incident {
  return "spells" in row;
}

/** The events of a row. */
export function linesOf(row: EventRow): readonly EventLine[] {
  return isIncident(row) ? row.lines : [row];
}

/** The rows of `lines`, which are in the order of their times; what stands alone stays as it is. */
export function eventRows(lines: readonly EventLine[]): readonly EventRow[] {
  const grouping = new Grouping();
  for (const line of lines) grouping.add(line);
  return grouping.rows();
}

type Growing = {
  -readonly [Part in keyof Incident]: Incident[Part] extends readonly (infer Each)[]
    ? Each[]
    : Incident[Part];
};

class Grouping {
  readonly #rows: (EventLine | Growing | undefined)[] = [];
  /** The latest of each trouble, by `keyOf`, with its place. */
  readonly #latest = new Map<string, { incident: Growing; place: number }>();

  add(line: EventLine): void {
    // A proposer that is let go for being slower, or a link that rests, is no trouble.
    const isTrouble = line.severity !== "info" || line.kind === "PEER_LEFT";
    const begins = isTrouble ? BEGINS[line.kind] : undefined;
    const trouble = begins ?? ENDS[line.kind];
    if (trouble === undefined) {
      this.#rows.push(line);
      return;
    }
    const absence = this.#latest.get(keyOf("absence", line))?.incident;
    if (trouble !== "absence" && line.subjectNodeId !== "" && isNear(absence, line.at)) {
      absence?.lines.push(line);
      return;
    }
    const known = this.#latest.get(keyOf(trouble, line))?.incident;
    const last = known?.spells.at(-1);
    if (begins === undefined) {
      if (known === undefined || line.at - (last?.to ?? line.at) > AGAIN_MS) {
        this.#rows.push(line);
      } else {
        known.lines.push(line);
        if (last !== undefined) last.to ??= line.at;
      }
    } else if (known === undefined || line.at - (last?.to ?? line.at) > AGAIN_MS) {
      this.#begin(trouble, line);
    } else {
      known.lines.push(line);
      if (last?.to !== undefined) known.spells.push({ from: line.at, to: undefined });
    }
  }

  rows(): readonly EventRow[] {
    return this.#rows.flatMap((row): EventRow[] => {
      if (row === undefined) return [];
      // One event says best itself what it is.
      return isIncident(row) && row.lines.length === 1 ? [...row.lines] : [row];
    });
  }

  #begin(trouble: Trouble, line: EventLine): void {
    const incident: Growing = {
      key: line.key,
      at: line.at,
      trouble,
      ownerId:
        trouble === "archive" || line.subjectNodeId === "" ? line.nodeId : line.subjectNodeId,
      subjectNodeId: line.subjectNodeId,
      nodeId: line.nodeId,
      lines: [line],
      spells: [{ from: line.at, to: undefined }],
    };
    let place = this.#rows.length;
    if (trouble === "absence") place = this.#adopt(incident, place);
    this.#rows[place] = incident;
    this.#latest.set(keyOf(trouble, line), { incident, place });
  }

  /** Who is away was missed by others first: what they told of it just before is part of it. */
  #adopt(absence: Growing, end: number): number {
    let first = end;
    for (const [key, { incident, place }] of this.#latest) {
      const own = incident.subjectNodeId === absence.subjectNodeId;
      const isOpen = incident.spells.at(-1)?.to === undefined;
      if (!own || !isOpen || incident.trouble === "absence" || absence.at - incident.at > NEAR_MS) {
        continue;
      }
      absence.lines.push(...incident.lines);
      this.#rows[place] = undefined;
      this.#latest.delete(key);
      first = Math.min(first, place);
    }
    absence.lines.sort((one, other) => one.at - other.at);
    absence.key = absence.lines[0]!.key;
    absence.at = absence.lines[0]!.at;
    return first;
  }
}

/** An absence is the node's own, whoever tells of it; another trouble is of a session, or between two. */
function keyOf(trouble: Trouble, { subjectNodeId, nodeId, sessionId }: EventLine): string {
  if (trouble === "absence") return `absence ${subjectNodeId}`;
  return `${trouble} ${nodeId} ${sessionId === "" ? subjectNodeId : sessionId}`;
}

function isNear(absence: Growing | undefined, at: number): boolean {
  const last = absence?.spells.at(-1);
  return last !== undefined && (last.to === undefined || at - last.to <= NEAR_MS);
}

export function isOver(incident: Incident): boolean {
  return incident.spells.at(-1)?.to !== undefined;
}

const RANK: readonly Severity[] = ["info", "warning", "error"];

/** The worst of what lasts; what is over is no more than news. */
export function severityOf(row: EventRow): Severity {
  if (!isIncident(row)) return row.severity;
  return isOver(row) ? "info" : (worstOf(row)?.severity ?? "info");
}

/** What mends it, where it lasts: as the worst of its events says. */
export function mendOf(incident: Incident): string {
  return isOver(incident) ? "" : (worstOf(incident)?.mend ?? "");
}

/** The latest one of those that matter most. */
function worstOf({ lines }: Incident): EventLine | undefined {
  return RANK.flatMap((rank) => lines.filter(({ severity }) => severity === rank)).at(-1);
}

/** What its node is called, in the words of its events; empty where none begins with it. */
export function nameTold({ lines }: Incident): string {
  const told = lines.find(({ kind }) => kind.startsWith("PEER_"))?.message ?? "";
  return told.split(" ", 1)[0] ?? "";
}

/** The incident in a sentence that goes on after its node's name: " was away 25 s." */
export function wordsOf(incident: Incident, nameOf: (nodeId: string) => string): string {
  const teller = nameOf(incident.nodeId);
  const kinds = new Set(incident.lines.map(({ kind }) => kind));
  const [what, lasting] = {
    absence:
      kinds.has("PEER_LEFT") && !kinds.has("PEER_DEAD")
        ? [" left the fleet and was away", " left the fleet"]
        : [" was away", kinds.has("PEER_DEAD") ? " is dead" : " does not answer"],
    link: [`’s link with ${teller} was slower`, `’s link with ${teller} is slower`],
    drafts: [` did not draft for ${teller}`, ` does not draft for ${teller}`],
    archive: [" had no archive for a session", " has no archive for a session"],
  }[incident.trouble] as [string, string];
  if (!isOver(incident)) return `${lasting} since ${clockTime(incident.spells.at(-1)!.from)}.`;
  const seconds = incident.spells.reduce((sum, { from, to }) => sum + ((to ?? from) - from), 0);
  const long = spell(seconds / 1000);
  const { length } = incident.spells;
  if (length > 1) return `${what} ${length} times, ${long} in all.`;
  return incident.trouble === "absence" ? `${what} ${long}.` : `${what} for ${long}.`;
}

/** 25 s, 3 m 12 s: as people say how long something was away. */
function spell(seconds: number): string {
  const whole = Math.max(1, Math.round(seconds));
  return whole < 60 ? `${whole} s` : duration(whole);
}
