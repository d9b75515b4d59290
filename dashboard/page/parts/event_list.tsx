import { memo } from "preact/compat";
import { useRef } from "preact/hooks";

import type { EventView } from "../../shared/messages";
import { fleetNow, node } from "../state/fleet";
import { tellersOf, type EventLine } from "./event_lines";
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
  events,
  withNode = true,
}: {
  events: readonly EventLine[];
  withNode?: boolean;
}) {
  const list = useRef<HTMLOListElement>(null);
  const held = usePausedList(events, useSlideIn(list));
  return (
    <div class="events-window" {...held.reading}>
      <ol class="events" ref={list}>
        {[...held.rows].reverse().map((event) => (
          <EventRow key={event.key} event={event} withNode={withNode} />
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

const EventRow = memo(function EventRow({
  event,
  withNode,
}: {
  event: EventLine;
  withNode: boolean;
}) {
  return (
    <li class={`event ${event.severity}`}>
      <time class="quiet" dateTime={new Date(event.at).toISOString()} title={dateTime(event.at)}>
        {isToday(event.at, fleetNow()) ? (
          clockTime(event.at)
        ) : (
          <>
            {day(event.at)}
            <br />
            {clockTime(event.at)}
          </>
        )}
      </time>
      <Icon name={ICONS[event.severity]} size={15} />
      <div class="event-text">
        <p>
          <span class="unseen">{event.severity}: </span>
          {withNode ? <Message event={event} /> : event.message}
          <Tellers line={event} />
        </p>
        <Mend text={event.mend} />
      </div>
    </li>
  );
});

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
  const names = tellers.map((nodeId) => node(nodeId).value?.name ?? nodeId);
  return (
    <span class="quiet small nowrap" title={names.join(", ")}>
      {" "}
      · seen by {plural(tellers.length, "node")}
    </span>
  );
}

/** A node by its name, as a link to its page. */
export function NodeLink({ nodeId }: { nodeId: string }) {
  const name = node(nodeId).value?.name ?? nodeId;
  return (
    <a class="node-link" href={href("node", nodeId)} title={name}>
      {clipped(name)}
    </a>
  );
}
