/** Models by nodes: who serves what, and what is on its way. */

import { computed } from "@preact/signals";

import type { NodeView, TransferView } from "../../shared/messages";
import { transfers } from "../state/fleet";
import { kindName } from "./badges";
import { Empty } from "./empty";
import { bytes, duration, modelName, percent } from "./format";
import { nodesByOffer } from "./slow_nodes";
import { href } from "./route";
import { isDown } from "./states";

interface Cell {
  roles: { role: "verifier" | "proposer"; stepSeconds: number }[];
  transfer?: TransferView;
}

interface ModelRow {
  modelId: string;
  kind: string;
  cells: ReadonlyMap<string, Cell>;
}

const running = computed(() => transfers.value.filter((each) => each.state !== "done"));
const rows = computed(() => modelRows(nodesByOffer.value, running.value));

/** Rows by model id; a model on its way to a node has a row before it is served. */
export function modelRows(
  fleet: readonly NodeView[],
  underWay: readonly TransferView[],
): ModelRow[] {
  const models = new Map<string, { kind: string; cells: Map<string, Cell> }>();
  const cell = (modelId: string, nodeId: string, kind: string): Cell => {
    const row = models.get(modelId) ?? { kind, cells: new Map<string, Cell>() };
    models.set(modelId, row);
    if (row.kind === "") row.kind = kind;
    const known = row.cells.get(nodeId) ?? { roles: [] };
    row.cells.set(nodeId, known);
    return known;
  };
  for (const node of fleet) {
    for (const model of node.models) {
      cell(model.modelId, node.nodeId, kindName(model)).roles.push({
        role: model.role,
        stepSeconds: model.stepSeconds,
      });
    }
  }
  for (const transfer of underWay) cell(transfer.modelId, transfer.nodeId, "").transfer = transfer;
  return [...models]
    .map(([modelId, row]) => ({ modelId, ...row }))
    .sort((one, other) => one.modelId.localeCompare(other.modelId));
}

export function ModelGrid() {
  const columns = nodesByOffer.value;
  if (rows.value.length === 0) {
    return (
      <Empty title="No models yet" command="fleet join --serve verifier=tiny">
        Give a node one to serve.
      </Empty>
    );
  }
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Models by node">
      <table class="model-grid">
        <thead>
          <tr>
            <th scope="col">
              <span class="unseen">Model</span>
            </th>
            {columns.map((column) => (
              <th key={column.nodeId} scope="col" class={isDown(column) ? "dim" : ""}>
                <a href={href("node", column.nodeId)}>
                  <span>{column.name}</span>
                </a>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.value.map((row) => (
            <tr key={row.modelId}>
              <th scope="row">
                <span class="clip" title={row.modelId}>
                  {modelName(row.modelId)}
                </span>
                <small>{row.kind}</small>
              </th>
              {columns.map((column) => (
                <td key={column.nodeId}>
                  <GridCell cell={row.cells.get(column.nodeId)} down={isDown(column)} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function GridCell({ cell, down }: { cell: Cell | undefined; down: boolean }) {
  if (cell === undefined) return <span class="grid-cell none" aria-label="not here" role="img" />;
  const { transfer } = cell;
  if (transfer !== undefined && cell.roles.length === 0) {
    const share = transfer.totalBytes > 0 ? transfer.doneBytes / transfer.totalBytes : 0;
    const failed = transfer.state === "failed";
    const words = failed
      ? `${transfer.kind} failed: ${transfer.error}`
      : `${transfer.kind} ${percent(share)}, ${bytes(transfer.doneBytes)}`;
    return (
      <span
        class={failed ? "grid-cell failed" : "grid-cell moving"}
        role="img"
        aria-label={words}
        title={words}
      >
        {!failed && <i style={{ transform: `scaleY(${share})` }} />}
        <b>{failed ? "!" : Math.floor(share * 100)}</b>
      </span>
    );
  }
  const roles = cell.roles.map(({ role }) => role);
  const step = cell.roles.find(({ stepSeconds }) => stepSeconds > 0)?.stepSeconds ?? 0;
  const words = roles.join(" and ") + (step > 0 ? `, ${duration(step)} a step` : "");
  const look = roles.includes("verifier") ? "verifier" : "proposer";
  return (
    <span
      class={`grid-cell ${look} ${down ? "dim" : ""}`}
      role="img"
      aria-label={words}
      title={words}
    >
      <b>{roles.map((role) => (role === "verifier" ? "V" : "P")).join("")}</b>
    </span>
  );
}
