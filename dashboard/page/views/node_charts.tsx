/** The latest quarter of an hour of a node. */

import { useMemo } from "preact/hooks";

import type { NodeView, Sample } from "../../shared/messages";
import { Chart, type Line } from "../parts/chart";
import { measureOf, rolesOf } from "../parts/activity";
import { bytes, percent, tokenRate } from "../parts/format";
import { Panel } from "../parts/panel";

export function Charts({ view }: { view: NodeView }) {
  const roles = rolesOf(view);
  return (
    <div class="charts">
      {roles.includes("verifier") && <SpeedChart view={view} />}
      {roles.includes("proposer") && (
        <SampleChart
          title="Drafts"
          note="blocks a second, for sessions anywhere"
          label="drafts/s"
          view={view}
          measure={measureOf("proposer")}
          format={tokenRate}
          least={10}
        />
      )}
      <SampleChart
        title="Memory"
        note={`of ${bytes(view.memoryTotalBytes)}`}
        label="in use"
        view={view}
        measure={(sample) => view.memoryTotalBytes - sample.memoryFreeBytes}
        format={bytes}
        least={view.memoryTotalBytes}
        binary
      />
      <CpuChart view={view} />
      {roles.includes("verifier") && (
        <SampleChart
          title="K/V"
          note="of all its sessions"
          label="K/V"
          view={view}
          measure={(sample) => sample.kvBytes}
          format={bytes}
          least={2 ** 20}
          binary
        />
      )}
      {roles.includes("archive") && (
        <SampleChart
          title="Archive"
          note={`kept of ${bytes(view.archiveBudgetBytes)}`}
          label="kept"
          view={view}
          measure={measureOf("archive")}
          format={bytes}
          least={2 ** 20}
          binary
        />
      )}
    </div>
  );
}

function SpeedChart({ view: { samples } }: { view: NodeView }) {
  const data = useMemo(
    () => ({
      at: samples.map((sample) => sample.at),
      speed: samples.map((sample) => sample.tokensPerSecond),
      prefill: samples.map((sample) => sample.prefillTokensPerSecond),
    }),
    [samples],
  );
  const speed: Line[] = [
    { label: "tok/s", colour: "--accent", values: data.speed },
    { label: "prefill", colour: "--ink-3", values: data.prefill, bare: true, dashed: true },
  ];
  const hasPrefill = data.prefill.some((value) => value > 0);
  return (
    <Panel title="Speed" note="tokens a second">
      <Chart
        at={data.at}
        lines={hasPrefill ? speed : speed.slice(0, 1)}
        height={140}
        format={tokenRate}
        least={10}
        summary={`${tokenRate(data.speed.at(-1) ?? 0)} tokens a second now, at most ${tokenRate(Math.max(0, ...data.speed))}.`}
      />
    </Panel>
  );
}

/** What the machine keeps busy of its cores, and the node of them; where nodes tell it. */
function CpuChart({ view: { samples } }: { view: NodeView }) {
  const data = useMemo(
    () => ({
      at: samples.map((sample) => sample.at),
      machine: samples.map((sample) => sample.cpuShare),
      own: samples.map((sample) => sample.processCpuShare),
    }),
    [samples],
  );
  const told = data.machine.filter((share) => share !== null);
  if (told.length === 0) return null;
  return (
    <Panel title="CPU" note="of the cores that it may use">
      <Chart
        at={data.at}
        lines={[
          { label: "machine", colour: "--accent", values: data.machine },
          { label: "this node", colour: "--ink-3", values: data.own, bare: true, dashed: true },
        ]}
        height={140}
        format={percent}
        summary={`${percent(data.machine.at(-1) ?? Number.NaN)} of the cores in use now, at most ${percent(Math.max(...told))}.`}
      />
    </Panel>
  );
}

interface SampleChartProps {
  title: string;
  note: string;
  label: string;
  view: NodeView;
  measure: (sample: Sample) => number;
  format: (value: number) => string;
  least: number;
  binary?: boolean;
}

/** One measure of the node's samples. */
function SampleChart({
  title,
  note,
  label,
  view: { samples },
  measure,
  format,
  least,
  binary = false,
}: SampleChartProps) {
  const data = useMemo(
    () => ({ at: samples.map((sample) => sample.at), values: samples.map(measure) }),
    [samples],
  );
  return (
    <Panel title={title} note={note}>
      <Chart
        at={data.at}
        lines={[{ label, colour: "--accent", values: data.values }]}
        height={140}
        format={format}
        least={least}
        binary={binary}
        summary={`${format(data.values.at(-1) ?? 0)} ${label} now, at most ${format(Math.max(0, ...data.values))}.`}
      />
    </Panel>
  );
}
