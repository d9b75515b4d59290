import type { NodeView, Sample } from "../../shared/messages";

/** Sums over nodes, one a second, oldest first. */
export interface FleetSeries {
  /** Milliseconds since 1970, whole seconds. */
  at: number[];
  /** Over the five seconds that end there, or as many as are told. */
  tokensPerSecond: number[];
  draftsPerSecond: number[];
  /** Each machine's once, however many nodes run on it. */
  usedBytes: number[];
  generatingCount: number[];
  /** Accepted of drafted tokens over ten seconds; NaN where none were drafted. */
  acceptance: number[];
}

/** Seconds over which throughput is told: blocks and prompts make single ones jump. */
export const RATE_SECONDS = 5;
/** Seconds over which acceptance is told: a second alone has too few blocks. */
const ACCEPTANCE_SECONDS = 10;
/**
 * Seconds for which a node's latest sample stands for those that it did not tell of: nodes
 * tell at different times of a second, so that at the newest one some always lag.
 */
const HELD_SECONDS = 2;

/**
 * Tells `count` seconds up to the newest of any node. Each second has every node's
 * sample of it, or its latest one if that is not older than HELD_SECONDS.
 */
export function fleetSeries(nodes: readonly NodeView[], count: number): FleetSeries {
  const told = nodes.filter((node) => node.samples.length > 0);
  if (told.length === 0) return empty();
  const last = Math.max(...told.map((node) => secondOf(node.samples.at(-1)!)));
  const oldest = Math.min(...told.map((node) => secondOf(node.samples[0]!)));
  const first = Math.max(last - count + 1, oldest);
  const length = last - first + 1;
  const zeros = (): number[] => new Array<number>(length).fill(0);
  const [tokens, drafts, generating, drafted, accepted] = [
    zeros(),
    zeros(),
    zeros(),
    zeros(),
    zeros(),
  ];
  const hosts = new Map<string, number[]>();
  for (const node of told) {
    const used = hosts.get(node.hostId) ?? zeros();
    hosts.set(node.hostId, used);
    for (const { sample, begin, end } of stretches(node.samples, first, last)) {
      for (let index = Math.max(0, begin - first); index <= end - first; index += 1) {
        tokens[index]! += sample.tokensPerSecond;
        drafts[index]! += sample.draftsPerSecond;
        generating[index]! += sample.generatingCount;
        // Nodes of one machine tell of the same memory.
        const own = Math.max(0, node.memoryTotalBytes - sample.memoryFreeBytes);
        used[index] = Math.max(used[index]!, own);
      }
      if (begin < first) continue;
      // What is counted is counted in its own second alone.
      drafted[begin - first]! += sample.draftedCount;
      accepted[begin - first]! += sample.acceptedCount;
    }
  }
  return {
    at: Array.from({ length }, (_, index) => (first + index) * 1000),
    tokensPerSecond: averaged(tokens, RATE_SECONDS),
    draftsPerSecond: drafts,
    usedBytes: zeros().map((_, index) =>
      [...hosts.values()].reduce((sum, used) => sum + used[index]!, 0),
    ),
    generatingCount: generating,
    acceptance: shares(accepted, drafted),
  };
}

interface Stretch {
  sample: Sample;
  /** The sample's second, and the last one that it stands for. */
  begin: number;
  end: number;
}

/** The samples that stand for any of the seconds `first` to `last`. */
function stretches(samples: readonly Sample[], first: number, last: number): Stretch[] {
  return samples.flatMap((sample, at) => {
    const begin = secondOf(sample);
    const next = samples[at + 1];
    const end = Math.min(
      last,
      begin + HELD_SECONDS,
      // Two samples may fall in one second of the clock: the later one tells it.
      next === undefined ? last : secondOf(next) - 1,
    );
    return end >= Math.max(begin, first) ? [{ sample, begin, end }] : [];
  });
}

function secondOf(sample: Sample): number {
  return Math.floor(sample.at / 1000);
}

/** Each the mean of itself and those before it, `count` of them or as many as there are. */
function averaged(values: readonly number[], count: number): number[] {
  let sum = 0;
  return values.map((value, index) => {
    sum += value - (index >= count ? values[index - count]! : 0);
    return Math.max(0, sum) / Math.min(count, index + 1);
  });
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
  return {
    at: [],
    tokensPerSecond: [],
    draftsPerSecond: [],
    usedBytes: [],
    generatingCount: [],
    acceptance: [],
  };
}
