import type { NodeView, Sample } from "../../shared/messages";

/** Sums over nodes, one a second, oldest first. */
export interface FleetSeries {
  /** Milliseconds since 1970, whole seconds. */
  at: number[];
  tokensPerSecond: number[];
  usedBytes: number[];
  generatingCount: number[];
  /** Accepted of drafted tokens over ten seconds; NaN where none were drafted. */
  acceptance: number[];
}

/** Seconds over which acceptance is told: a second alone has too few blocks. */
const ACCEPTANCE_SECONDS = 10;

/** Tells `count` seconds up to the latest of any node; a second that a node has no sample of adds nothing. */
export function fleetSeries(nodes: readonly NodeView[], count: number): FleetSeries {
  const seconds = nodes.flatMap((node) => node.samples.slice(-1).map((sample) => secondOf(sample)));
  const firsts = nodes.flatMap((node) =>
    node.samples.slice(0, 1).map((sample) => secondOf(sample)),
  );
  if (seconds.length === 0) return empty();
  const last = Math.max(...seconds);
  const first = Math.max(last - count + 1, Math.min(...firsts));
  const length = last - first + 1;
  const zeros = (): number[] => new Array<number>(length).fill(0);
  const [tokens, used, generating, drafted, accepted] = [
    zeros(),
    zeros(),
    zeros(),
    zeros(),
    zeros(),
  ];
  for (const node of nodes) {
    for (const [at, sample] of node.samples.entries()) {
      const index = secondOf(sample) - first;
      if (index < 0 || index >= length) continue;
      // Two samples may fall in one second of the clock: the later one tells it.
      const next = node.samples[at + 1];
      if (next !== undefined && secondOf(next) === secondOf(sample)) continue;
      tokens[index]! += sample.tokensPerSecond;
      used[index]! += Math.max(0, node.memoryTotalBytes - sample.memoryFreeBytes);
      generating[index]! += sample.generatingCount;
      drafted[index]! += sample.draftedCount;
      accepted[index]! += sample.acceptedCount;
    }
  }
  // The last second is still coming in from some nodes, and would show as a dip.
  const whole = length > 2 && nodes.length > 1 ? length - 1 : length;
  return {
    at: Array.from({ length: whole }, (_, index) => (first + index) * 1000),
    tokensPerSecond: tokens.slice(0, whole),
    usedBytes: used.slice(0, whole),
    generatingCount: generating.slice(0, whole),
    acceptance: shares(accepted, drafted).slice(0, whole),
  };
}

function secondOf(sample: Sample): number {
  return Math.floor(sample.at / 1000);
}

function shares(parts: readonly number[], wholes: readonly number[]): number[] {
  let part = 0;
  let whole = 0;
  return wholes.map((value, index) => {
    const old = index - ACCEPTANCE_SECONDS;
    part += parts[index]! - (old >= 0 ? parts[old]! : 0);
    whole += value - (old >= 0 ? wholes[old]! : 0);
    return whole > 0 ? part / whole : Number.NaN;
  });
}

function empty(): FleetSeries {
  return { at: [], tokensPerSecond: [], usedBytes: [], generatingCount: [], acceptance: [] };
}
