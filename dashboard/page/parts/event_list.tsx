import { memo } from "preact/compat";
import { useRef } from "preact/hooks";

import type { EventView } from "../../shared/messages";
import { fleetNow, node } from "../state/fleet";
import { tellersOf, type EventLine } from "./event_lines";
import {
  isIncident,
  isOver,
  linesOf,
  mendOf,
  nameTold,
  severityOf,
  wordsOf,
  type EventRow,
  type Incident,
} from "./incidents";
import { clipped, clockTime, dateTime, day, isToday, plural } from "./format";
import { usePausedList } from "./paused_list";
import { Icon, type IconName } from "./icon";
import { Mend } from "./problem";
import { href } from "./route";
import { useSlideIn } from "./slide_in";

const ICONS: Readonly<Record<EventView["severity"], IconName>> = {
  info: "info",
  warning: "warning",
  error: "error",
};

/** Events, latest first. Those that come in while somebody reads here wait until they are asked for. */
export function EventList({
  rows,
  withNode = true,
}: {
  rows: readonly EventRow[];
  withNode?: boolean;
}) {
  const list = useRef<HTMLOListElement>(null);
  const held = usePausedList(rows, useSlideIn(list));
  return (
    <div class="events-window" {...held.reading}>
      <ol class="events" ref={list}>
        {[...held.rows].reverse().map((row) => (
          <Row key={row.key} row={row} withNode={withNode} />
        ))}
      </ol>
      {held.newCount > 0 && (
        <button type="button" class="events-waiting" onClick={held.release}>
          Show {plural(held.newCount, "newer event")}
        </button>
      )}
    </div>
  );
}

const Row = memo(
  function Row({ row, withNode }: { row: EventRow; withNode: boolean }) {
    const severity = severityOf(row);
    const over = isIncident(row) && isOver(row);
    return (
      <li class={`event ${severity}`}>
        <Time at={row.at} />
        <Icon name={over ? "check" : ICONS[severity]} size={15} />
        <div class="event-text">
          {isIncident(row) ? (
            <IncidentText incident={row} />
          ) : (
            <>
              <p>
                <span class="unseen">{severity}: </span>
                {withNode ? <Message event={row} /> : row.message}
                <Tellers line={row} />
              </p>
              <Mend text={row.mend} />
            </>
          )}
        </div>
      </li>
    );
  },
  // Rows are made anew with each event; those of the same events are the same.
  (one, other) => one.withNode === other.withNode && contentOf(one.row) === contentOf(other.row),
);

function contentOf(row: EventRow): string {
  return linesOf(row)
    .map((line) => `${line.key} ${line.at} ${tellersOf(line).length}`)
    .join();
}

function Time({ at }: { at: number }) {
  return (
    <time class="quiet" dateTime={new Date(at).toISOString()} title={dateTime(at)}>
      {isToday(at, fleetNow()) ? (
        clockTime(at)
      ) : (
        <>
          {day(at)}
          <br />
          {clockTime(at)}
        </>
      )}
    </time>
  );
}

/** What it was in a sentence; its events unfold. */
function IncidentText({ incident }: { incident: Incident }) {
  const { ownerId, lines } = incident;
  // A node that left is forgotten before its events are.
  const known = node(ownerId).value;
  return (
    <>
      <p>
        <span class="unseen">{severityOf(incident)}: </span>
        {known === undefined ? (
          clipped(nameTold(incident) || ownerId)
        ) : (
          <NodeLink nodeId={ownerId} />
        )}
        {wordsOf(incident, nameOf)}
      </p>
      <Mend text={mendOf(incident)} />
      <details class="incident">
        <summary class="quiet small">{plural(lines.length, "event")}</summary>
        <ol>
          {lines.map((line) => (
            <li key={line.key} class={line.severity}>
              <Time at={line.at} />
              <span>
                <span class="unseen">{line.severity}: </span>
                <Message event={line} />
                <Tellers line={line} />
              </span>
            </li>
          ))}
        </ol>
      </details>
    </>
  );
}

/** The message with its node as a link: its first word where it begins with the name, else at the end. */
function Message({ event }: { event: EventView }) {
  const nodeId = event.subjectNodeId === "" ? event.nodeId : event.subjectNodeId;
  const name = node(nodeId).value?.name;
  if (name === undefined) return <>{event.message}</>;
  if (event.message.startsWith(`${name} `)) {
    return (
      <>
        <NodeLink nodeId={nodeId} />
        {event.message.slice(name.length)}
      </>
    );
  }
  return (
    <>
      {event.message}{" "}
      <span class="quiet small nowrap">
        · <NodeLink nodeId={nodeId} />
      </span>
    </>
  );
}

/** How many nodes told it, where it is not the one that every line names. */
function Tellers({ line }: { line: EventLine }) {
  const tellers = tellersOf(line);
  if (tellers.length < 2) return null;
  const names = tellers.map(nameOf);
  return (
    <span class="quiet small nowrap" title={names.join(", ")}>
      {" "}
      · seen by {plural(tellers.length, "node")}
    </span>
  );
}

/** A node by its name, as a link to its page. */
export function NodeLink({ nodeId }: { nodeId: string }) {
  const name = nameOf(nodeId);
  return (
    <a class="node-link" href={href("node", nodeId)} title={name}>
      {clipped(name)}
    </a>
  );
}

function nameOf(nodeId: string): string {
  return node(nodeId).value?.name ?? nodeId;
}
