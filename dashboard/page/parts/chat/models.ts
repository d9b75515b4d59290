/** The models that a chat can be had with, each in a line of facts. */

import { computed } from "@preact/signals";

import { transfers } from "../../state/fleet";
import { bytes, plural } from "../format";
import { modelRows, type ModelRow } from "../models/model_rows";
import { nodesByOffer, nodesEachSecond } from "../slow_nodes";
import { isDown } from "../states";

const served = computed(() => {
  const rows = modelRows(
    nodesByOffer.value.filter((node) => !isDown(node)),
    transfers.value,
  );
  return new Map(rows.map((row) => [row.modelId, row]));
});

/** "smollm2 · 258 MiB". */
export function modelLabel(modelId: string): string {
  const size = served.value.get(modelId)?.bytes ?? 0;
  return size > 0 ? `${modelId} · ${bytes(size)}` : modelId;
}

/** Its numbers, on how many nodes it is, and what their chats may still take of memory. */
export function modelFacts(modelId: string): string {
  const row = served.value.get(modelId);
  if (row === undefined) return "";
  const verifiers = row.holders.filter(({ offer }) => offer.role === "verifier");
  const numbers = [row.offer?.dtype ?? "", row.offer?.quantization ?? ""];
  const context = row.offer?.contextLength ?? 0;
  return [
    ...numbers.filter((each) => each !== ""),
    ...(context > 0 ? [`${context.toLocaleString("en")} tokens`] : []),
    verifiers.length === 1
      ? `on ${nameOf(verifiers[0]?.nodeId)}`
      : plural(verifiers.length, "node"),
    ...roomOf(row),
  ].join(" · ");
}

/** The most that one of its nodes has free for keys and values. */
function roomOf(row: ModelRow): string[] {
  const holders = new Set(row.holders.map(({ nodeId }) => nodeId));
  const free = nodesEachSecond.value
    .filter(({ nodeId }) => holders.has(nodeId))
    .map(({ kvBudgetBytes, kvBytes }) => kvBudgetBytes - kvBytes);
  const most = Math.max(0, ...free);
  return most > 0 ? [`${bytes(most)} free for chats`] : [];
}

function nameOf(nodeId: string | undefined): string {
  return nodesByOffer.value.find((node) => node.nodeId === nodeId)?.name ?? "";
}
