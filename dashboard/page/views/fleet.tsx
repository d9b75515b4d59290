/** The home page: the fleet at a glance. */

import { computed, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

import { Chart } from "../parts/chart";
import { chartSecond } from "../parts/clock";
import { CROWD } from "../parts/crowd";
import { Empty } from "../parts/empty";
import { EventList } from "../parts/event_list";
import { allRows } from "../parts/event_rows";
import { bytesOf, NONE, plural, tokenRate } from "../parts/format";
import { nodesEachSecond } from "../parts/slow_nodes";
import { hostMemory } from "../parts/hosts";
import { ModelGrid } from "../parts/model_grid";
import { NodeTable } from "../parts/node_table";
import { PageHead } from "../parts/page_head";
import { Panel } from "../parts/panel";
import { href } from "../parts/route";
import { fleetSeries } from "../parts/series";
import { Segmented } from "../parts/segmented";
import { Sparkline } from "../parts/sparkline";
import { isDown } from "../parts/states";
import { TopologyLegend } from "../parts/topology/legend";
import { Topology } from "../parts/topology/topology";
import { TransferList } from "../parts/transfer_list";
import { Value } from "../parts/value";
import { connection, nodeIds, nodes, sessions, transfers } from "../state/fleet";

/** Seconds that the chart can show, by its switch; the longer one is all that a node keeps. */
const SPANS = { short: 120, long: 900 } as const;
type Span = keyof typeof SPANS;
/** Kept while other views are open. */
const span = signal<Span>("short");
/** Seconds that the key figures' lines show. */
const SPARK_SECONDS = 180;

const series = computed(() => {
  void chartSecond.value;
  void nodeIds.value;
  return fleetSeries(nodes.peek(), SPANS.long);
});

/** From nothing to an answer, with the models that are shipped. */
const FIRST_COMMANDS = [
  { text: "fleet join --serve verifier=tiny", what: "A node that answers, in a terminal" },
  {
    text: "fleet join --name helper --serve proposer=tiny-dflash",
    what: "One that drafts for it, in another",
  },
  {
    text: 'fleet generate --verifier tiny "def parse_header(line):"',
    what: "An answer, in a third",
  },
];

export function FleetView() {
  if (nodeIds.value.length === 0) {
    return (
      <>
        <PageHead title="Fleet" />
        <Panel title="Nodes">
          <Empty title="No nodes yet" commands={FIRST_COMMANDS}>
            {connection.value.state === "live"
              ? `Waiting for ${connection.value.gateway.waitingFor}, which is asked again every two seconds: start one, and it appears here by itself.`
              : "Waiting for the dashboard's process."}
          </Empty>
        </Panel>
      </>
    );
  }
  const crowded = nodeIds.value.length >= CROWD;
  return (
    <>
      <PageHead title="Fleet" />
      <div class={crowded ? "stack unhurried" : "stack"}>
        <KeyFigures />
        <div class="overview">
          <Panel
            title="Topology"
            note="filled by memory in use; round trips from the gateway, or from the node you point at"
            flush
            class="overview-topology"
          >
            <Topology />
            <TopologyLegend />
          </Panel>
          <Panel
            title="Throughput"
            note="tokens a second, all nodes"
            class="overview-chart"
            end={
              <Segmented
                legend="Span of the chart"
                small
                value={span.value}
                onChange={(chosen) => (span.value = chosen)}
                options={[
                  { value: "short", label: "2 min" },
                  { value: "long", label: "15 min" },
                ]}
              />
            }
          >
            <Throughput height={crowded ? 210 : 186} />
          </Panel>
          <Panel
            title="Latest events"
            class="overview-events"
            flush
            end={
              <a class="link small" href={href("events")}>
                All events
              </a>
            }
          >
            <LatestEvents />
          </Panel>
        </div>
        <Panel title="Nodes" flush>
          <NodeTable />
        </Panel>
        <div class={crowded ? "stack" : "models-and-transfers"}>
          <Panel title="Models" note="by node" flush>
            <ModelGrid />
          </Panel>
          <LatestTransfers />
        </div>
      </div>
    </>
  );
}

function KeyFigures() {
  const all = nodesEachSecond.value;
  const up = all.filter((node) => !isDown(node));
  const inUse = hostMemory(up);
  const memory = bytesOf(inUse.usedBytes, inUse.totalBytes);
  const { tokensPerSecond, usedBytes: used, generatingCount, acceptance } = series.value;
  const open = sessions.peek();
  const generating = open.filter((session) => session.state === "generating").length;
  const latest = acceptance.findLast((share) => !Number.isNaN(share)) ?? Number.NaN;
  return (
    <section class="panel key-figures" aria-label="Key figures">
      <KeyFigure label="Nodes up" value={String(up.length)} unit={`/ ${all.length}`}>
        <NodeDots />
      </KeyFigure>
      <KeyFigure label="Throughput" value={tokenRate(tokensPerSecond.at(-1) ?? 0)} unit="tok/s">
        <Line values={tokensPerSecond} />
      </KeyFigure>
      <KeyFigure
        label="Memory in use"
        value={memory.part}
        unit={`/ ${memory.whole} ${memory.unit}`}
      >
        <Line values={used} top={inUse.totalBytes} />
      </KeyFigure>
      <KeyFigure label="Generating" value={String(generating)} unit={`/ ${open.length} sessions`}>
        <Line
          values={generatingCount}
          top={Math.max(4, ...generatingCount.slice(-SPARK_SECONDS)) * 1.2}
        />
      </KeyFigure>
      <KeyFigure
        label="Drafts accepted"
        value={Number.isNaN(latest) ? NONE : String(Math.round(latest * 100))}
        unit="%"
      >
        <Line values={acceptance.map((share) => (Number.isNaN(share) ? 0 : share))} top={1} />
      </KeyFigure>
    </section>
  );
}

interface KeyFigureProps {
  label: string;
  value: string;
  unit: string;
  children: ComponentChildren;
}

function KeyFigure({ label, value, unit, children }: KeyFigureProps) {
  return (
    <div class="key-figure">
      <h2>{label}</h2>
      <p class="figure-value">
        <Value text={value} unit={unit} />
      </p>
      <div class="key-figure-line">{children}</div>
    </div>
  );
}

function Line({ values, top }: { values: readonly number[]; top?: number }) {
  const shown = values.slice(-SPARK_SECONDS);
  return (
    <Sparkline
      values={shown}
      span={SPARK_SECONDS}
      top={top ?? Math.max(1, ...shown) * 1.15}
      height={26}
    />
  );
}

/** One mark a node: up, in trouble, or down. */
function NodeDots() {
  return (
    <div class="node-dots" aria-hidden="true">
      {nodesEachSecond.value.map((node) => (
        <i key={node.nodeId} class={node.liveness} />
      ))}
    </div>
  );
}

function Throughput({ height }: { height: number }) {
  const seconds = SPANS[span.value];
  const at = series.value.at.slice(-seconds);
  const tokensPerSecond = series.value.tokensPerSecond.slice(-seconds);
  const most = Math.max(0, ...tokensPerSecond);
  const summary =
    at.length === 0
      ? "No tokens were counted yet."
      : `${tokenRate(tokensPerSecond.at(-1)!)} tokens a second now, at most ${tokenRate(most)} in the last ${plural(Math.ceil(at.length / 60), "minute")}.`;
  return (
    <Chart
      at={at}
      lines={[{ label: "tok/s", colour: "--accent", values: tokensPerSecond }]}
      height={height}
      format={tokenRate}
      summary={summary}
      least={10}
      seconds={seconds}
    />
  );
}

function LatestTransfers() {
  const latest = transfers.value.filter((each) => each.state !== "done").slice(-4);
  if (latest.length === 0) return null;
  return (
    <Panel
      title="On their way"
      class="compact"
      flush
      end={
        <a class="link small" href={href("models")}>
          All models
        </a>
      }
    >
      <TransferList transfers={latest} />
    </Panel>
  );
}

function LatestEvents() {
  const latest = allRows.value.slice(-12);
  if (latest.length === 0) return <p class="quiet panel-body">Nothing happened yet.</p>;
  return (
    <div class="latest-events" tabIndex={0} role="region" aria-label="Latest events, scrollable">
      <EventList rows={latest} />
    </div>
  );
}
