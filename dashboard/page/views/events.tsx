import { signal } from "@preact/signals";

import type { EventView, Severity } from "../../shared/messages";
import { Empty } from "../parts/empty";
import { EventList } from "../parts/event_list";
import { plural } from "../parts/format";
import { allRows } from "../parts/event_rows";
import { linesOf, type EventRow } from "../parts/incidents";
import { nodesByOffer } from "../parts/slow_nodes";
import { PageHead } from "../parts/page_head";
import { Panel } from "../parts/panel";
import { Segmented } from "../parts/segmented";
import { events } from "../state/fleet";

type Least = "all" | "warning" | "error";

/** Kept while other views are open. */
const filter = signal<{ least: Least; nodeId: string; text: string }>({
  least: "all",
  nodeId: "",
  text: "",
});

const RANK: Readonly<Record<Severity, number>> = { info: 0, warning: 1, error: 2 };
const LEAST: Readonly<Record<Least, number>> = { all: 0, warning: 1, error: 2 };

export function EventsView() {
  const { least, nodeId, text } = filter.value;
  const shown = allRows.value.filter((row) => rowFits(row, least, nodeId, text));
  const eventCount = shown.reduce((sum, row) => sum + linesOf(row).length, 0);
  const change = (part: Partial<typeof filter.value>): void => {
    filter.value = { ...filter.value, ...part };
  };
  return (
    <>
      <PageHead title="Events" />
      <div class="filters">
        <Segmented
          legend="Severity"
          value={least}
          onChange={(chosen) => change({ least: chosen })}
          options={[
            { value: "all", label: "All" },
            { value: "warning", label: "Warnings and errors" },
            { value: "error", label: "Errors" },
          ]}
        />
        <select
          class="select"
          aria-label="Node"
          value={nodeId}
          onChange={(event) => change({ nodeId: event.currentTarget.value })}
        >
          <option value="">Every node</option>
          {nodesByOffer.value.map((node) => (
            <option key={node.nodeId} value={node.nodeId}>
              {node.name}
            </option>
          ))}
        </select>
        <input
          class="input"
          type="search"
          placeholder="Search"
          aria-label="Search in events"
          value={text}
          onInput={(event) => change({ text: event.currentTarget.value })}
        />
      </div>
      <Panel
        title={plural(eventCount, "event")}
        note="latest first; what belongs together is one entry"
        flush
      >
        {shown.length === 0 ? (
          <Empty title={events.value.length === 0 ? "Nothing happened yet" : "No event fits"}>
            {events.value.length === 0
              ? "Joins, losses, dropped proposers, link changes and evictions appear here."
              : "Other words, another node or severity may."}
          </Empty>
        ) : (
          <EventList key={`${least} ${nodeId} ${text}`} rows={shown} />
        )}
      </Panel>
    </>
  );
}

/** A row has what is looked for where one of its events has: the others tell how it went on. */
function rowFits(row: EventRow, least: Least, nodeId: string, text: string): boolean {
  return linesOf(row).some((event) => fits(event, least, nodeId, text));
}

function fits(event: EventView, least: Least, nodeId: string, text: string): boolean {
  if (RANK[event.severity] < LEAST[least]) return false;
  if (nodeId !== "" && event.nodeId !== nodeId && event.subjectNodeId !== nodeId) return false;
  const words = text.trim().toLowerCase();
  return (
    words === "" || `${event.message} ${event.mend} ${event.kind}`.toLowerCase().includes(words)
  );
}
