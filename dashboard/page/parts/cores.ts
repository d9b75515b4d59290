/** How busy what computes is: a machine's cores, a node's share of them, an accelerator. Pure. */

import type { NodeView, Sample } from "../../shared/messages";
import { RATE_SECONDS } from "./series";
import { isDown } from "./states";

/** Shares of 0 to 1 over the latest seconds; null for what is not told now. */
export interface Use {
  /** What all programs of its machine keep busy of the cores that the node may run on. */
  cores: number | null;
  /** What the node's own process has of them. */
  own: number | null;
  accelerator: number | null;
}

export function useOf(node: NodeView): Use {
  const latest = isDown(node) || !node.reachable ? [] : node.samples.slice(-RATE_SECONDS);
  return {
    cores: mean(latest, (sample) => sample.cpuShare),
    own: mean(latest, (sample) => sample.processCpuShare),
    accelerator: mean(latest, (sample) => sample.acceleratorShare),
  };
}

/**
 * What is busy of each machine's cores, by the id of the first of its nodes that tells it. They
 * look at different moments, and maybe at some of the cores each: what is told is the fullest look.
 */
export function busyMachines(nodes: readonly NodeView[]): Map<string, number> {
  const tellers = new Map<string, string>();
  const busy = new Map<string, number>();
  for (const node of nodes) {
    const { cores } = useOf(node);
    if (cores === null) continue;
    const teller = tellers.get(node.hostId) ?? node.nodeId;
    tellers.set(node.hostId, teller);
    busy.set(teller, Math.max(cores, busy.get(teller) ?? 0));
  }
  return busy;
}

/** Null where the latest sample tells none: what was told before is not of now. */
function mean(
  samples: readonly Sample[],
  measure: (sample: Sample) => number | null,
): number | null {
  const told = samples.map(measure).filter((share) => share !== null);
  if (told.length === 0 || measure(samples.at(-1)!) === null) return null;
  const sum = told.reduce((total, share) => total + share, 0);
  return Math.min(1, Math.max(0, sum / told.length));
}
