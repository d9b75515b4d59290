import { computed } from "@preact/signals";
import { memo } from "preact/compat";

import type { NodeView } from "../../shared/messages";
import { node, nodeIds, nodes } from "../state/fleet";
import { draftsAccepted } from "./acceptance";
import { State } from "./badges";
import { listSecond, second } from "./clock";
import { useOf } from "./cores";
import { activitiesOf, measureOf, rolesOf } from "./activity";
import { ago, bytes, bytesOf, clipped, modelName, NONE, percent } from "./format";
import { memoryTone, Meter } from "./meter";
import { href } from "./route";
import { Sparkline } from "./sparkline";
import { isDown, nodeState, recentAcceptance, usedBytes, usedShare, type RoleName } from "./states";
import { Value } from "./value";

/** Seconds of a sparkline. */
const SPAN = 120;

/** The tops that sparklines of one measure share, in steps, so that they seldom rescale together. */
const sharedTops = computed(() => {
  void listSecond.value;
  const tops = new Map<RoleName | undefined, number>();
  for (const each of nodes.peek()) {
    const [role] = rolesOf(each);
    const values = each.samples.slice(-SPAN).map(measureOf(role));
    tops.set(role, Math.max(1, tops.get(role) ?? 0, ...values));
  }
  return new Map([...tops].map(([role, most]) => [role, stepAbove(most)]));
});

function stepAbove(most: number): number {
  const step = 10 ** Math.floor(Math.log10(most)) / 4;
  return Math.ceil(most / step) * step;
}

export function NodeTable() {
  return (
    <div class="scroll">
      <table class="table nodes">
        <thead>
          <tr>
            <th scope="col">Node</th>
            <th scope="col">State</th>
            <th scope="col" class="mid">
              Models
            </th>
            <th scope="col" class="num">
              Does now
            </th>
            <th scope="col" class="mid">
              <span class="unseen">The same over two minutes</span>
            </th>
            <th scope="col" class="num mid">
              Memory
            </th>
            <th scope="col" class="num wide">
              CPU
            </th>
            <th scope="col" class="num wide">
              K/V
            </th>
            <th scope="col" class="num wide">
              Sessions
            </th>
            <th scope="col" class="num wide">
              Accepted
            </th>
          </tr>
        </thead>
        <tbody>
          {nodeIds.value.map((nodeId) => (
            <NodeRow key={nodeId} nodeId={nodeId} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

const NodeRow = memo(function NodeRow({ nodeId }: { nodeId: string }) {
  const view = node(nodeId).value;
  if (view === undefined) return null;
  const down = isDown(view);
  const share = usedShare(view);
  const memory = bytesOf(usedBytes(view), view.memoryTotalBytes);
  const acceptance = recentAcceptance(view) ?? draftsAccepted.value.get(nodeId);
  const [role] = rolesOf(view);
  return (
    <tr class={down ? "to dim" : "to"}>
      <th scope="row">
        <a class="row-link" href={href("node", nodeId)} title={view.name}>
          {clipped(view.name)}
        </a>
      </th>
      <td class="cell-state">
        <State {...nodeState(view)} />
        {down && <DownFor at={view.heardAt} />}
      </td>
      <td class="mid cell-models">
        <span class="clip" title={view.models.map((model) => model.modelId).join(", ")}>
          {[...new Set(view.models.map((model) => modelName(model.modelId)))].join(", ") || "none"}
        </span>
      </td>
      <td class="num cell-rate">{!down && <Activities view={view} />}</td>
      <td class="mid cell-spark">
        <Sparkline
          values={view.samples.slice(-SPAN).map(measureOf(role))}
          span={SPAN}
          top={sharedTops.value.get(role) ?? 1}
          height={24}
          still={down}
        />
      </td>
      <td class="num mid cell-memory">
        <span class="memory-figures">
          {memory.part}{" "}
          <span class="quiet">
            / {memory.whole} {memory.unit}
          </span>
        </span>
        <Meter
          share={down ? 0 : share}
          tone={memoryTone(share)}
          label={`Memory of ${view.name}, ${percent(share)}`}
        />
      </td>
      <td class="num wide">
        <Value text={percent(useOf(view).cores ?? Number.NaN)} />
      </td>
      <td class="num wide">{bytes(view.kvBytes)}</td>
      <td class="num wide">
        {view.generatingCount} <span class="quiet">/ {view.sessionCount}</span>
      </td>
      <td class="num wide">
        <Value text={percent(acceptance ?? Number.NaN)} />
      </td>
    </tr>
  );
});

/** A figure for each of the node's roles. */
function Activities({ view }: { view: NodeView }) {
  const activities = activitiesOf(view);
  if (activities.length === 0) return <Value text={NONE} />;
  return (
    <>
      {activities.map(({ role, value, unit }) => (
        <span key={role} class="doing">
          {value} <span class="quiet">{unit}</span>
        </span>
      ))}
    </>
  );
}

function DownFor({ at }: { at: number }) {
  return <span class="quiet small"> since {ago(at, second.value).replace("now", "just now")}</span>;
}
