import { computed } from "@preact/signals";
import { memo } from "preact/compat";

import { node, nodeIds, nodes } from "../state/fleet";
import { State } from "./badges";
import { listSecond, second } from "./clock";
import { ago, bytes, bytesOf, modelName, percent, tokenRate } from "./format";
import { memoryTone, Meter } from "./meter";
import { href } from "./route";
import { Sparkline } from "./sparkline";
import { isDown, nodeState, recentAcceptance, usedBytes, usedShare } from "./states";

/** Seconds of a sparkline. */
const SPAN = 120;

/** The top that all nodes' sparklines share, in steps, so that they seldom rescale together. */
const sharedTop = computed(() => {
  void listSecond.value;
  let most = 1;
  for (const each of nodes.peek()) {
    for (const sample of each.samples.slice(-SPAN)) most = Math.max(most, sample.tokensPerSecond);
  }
  const step = 10 ** Math.floor(Math.log10(most)) / 4;
  return Math.ceil(most / step) * step;
});

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
              tok/s
            </th>
            <th scope="col" class="mid">
              <span class="unseen">Tokens a second over two minutes</span>
            </th>
            <th scope="col" class="num mid">
              Memory
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
  const acceptance = recentAcceptance(view);
  return (
    <tr class={down ? "to dim" : "to"}>
      <th scope="row">
        <a class="row-link" href={href("node", nodeId)}>
          {view.name}
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
      <td class="num cell-rate">
        {down ? "—" : tokenRate(view.samples.at(-1)?.tokensPerSecond ?? 0)}
      </td>
      <td class="mid cell-spark">
        <Sparkline
          values={view.samples.slice(-SPAN).map((sample) => sample.tokensPerSecond)}
          span={SPAN}
          top={sharedTop.value}
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
      <td class="num wide">{bytes(view.kvBytes)}</td>
      <td class="num wide">
        {view.generatingCount} <span class="quiet">/ {view.sessionCount}</span>
      </td>
      <td class="num wide">{acceptance === undefined ? "—" : percent(acceptance)}</td>
    </tr>
  );
});

function DownFor({ at }: { at: number }) {
  return <span class="quiet small"> since {ago(at, second.value).replace("now", "just now")}</span>;
}
