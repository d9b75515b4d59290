/** What a node does in each of its roles, as figures. Pure. */

import type { NodeView, Sample, SessionView } from "../../shared/messages";
import { byteQuantity, bytes, bytesOf, tokenRate, tokenRateShort } from "./format";
import { RATE_SECONDS } from "./series";
import { hasRole, isArchive, type RoleName } from "./states";

/** A node's work in one role. */
export interface Activity {
  role: RoleName;
  value: string;
  unit: string;
  /** The same for small places. */
  short: string;
  shortUnit: string;
  /** For those that have room for what it is of: an archive's budget. */
  roomy: string;
  roomyUnit: string;
  /** For who does not see the figure. */
  words: string;
}

/** The verifier's first, then the proposer's and the archive's; none for a node without a role. */
export function activitiesOf(node: NodeView): Activity[] {
  return rolesOf(node).map((role) => activityIn(role, node));
}

/** The roles that the node serves, the one that it is known by first. */
export function rolesOf(node: NodeView): RoleName[] {
  return [
    ...(hasRole(node, "verifier") ? (["verifier"] as const) : []),
    ...(hasRole(node, "proposer") ? (["proposer"] as const) : []),
    ...(isArchive(node) ? (["archive"] as const) : []),
  ];
}

/** Over the latest seconds: single ones jump with blocks and prompts. */
function meanOf(node: NodeView, measure: (sample: Sample) => number): number {
  const latest = node.samples.slice(-RATE_SECONDS);
  return latest.reduce((sum, sample) => sum + measure(sample), 0) / Math.max(1, latest.length);
}

function activityIn(role: RoleName, node: NodeView): Activity {
  switch (role) {
    case "verifier": {
      const rate = meanOf(node, (sample) => sample.tokensPerSecond);
      return { role, ...rateOf(rate, "tok"), words: `${tokenRate(rate)} tokens a second` };
    }
    case "proposer": {
      const rate = meanOf(node, (sample) => sample.draftsPerSecond);
      return { role, ...rateOf(rate, "drafts"), words: `${tokenRate(rate)} drafts a second` };
    }
    case "archive": {
      const { value, unit } = byteQuantity(node.archiveBytes);
      const words = `keeps ${bytes(node.archiveBytes)} of ${bytes(node.archiveBudgetBytes)}`;
      const own = { value, unit: `${unit} kept`, short: value, shortUnit: unit };
      const { part, whole, unit: scale } = bytesOf(node.archiveBytes, node.archiveBudgetBytes);
      return node.archiveBudgetBytes > 0
        ? { role, ...own, roomy: part, roomyUnit: `of ${whole} ${scale}`, words }
        : { role, ...own, roomy: value, roomyUnit: unit, words };
    }
  }
}

function rateOf(rate: number, what: string): Omit<Activity, "role" | "words"> {
  const [value, short] = [tokenRate(rate), tokenRateShort(rate)];
  const unit = `${what}/s`;
  return { value, unit, short, shortUnit: "/s", roomy: short, roomyUnit: unit };
}

/** What a sparkline of the node tells: what it does in the role that it is known by. */
export function measureOf(role: RoleName | undefined): (sample: Sample) => number {
  switch (role) {
    case "proposer":
      return (sample) => sample.draftsPerSecond;
    case "archive":
      return (sample) => sample.archiveBytes;
    default:
      return (sample) => sample.tokensPerSecond;
  }
}

/**
 * Accepted of the tokens that each proposer's node drafted for the sessions that are
 * open, 0 to 1; nodes that drafted none for them are absent.
 */
export function draftAcceptances(sessions: readonly SessionView[]): ReadonlyMap<string, number> {
  const counts = new Map<string, { drafted: number; accepted: number }>();
  for (const { proposerNodeId, draftedCount, acceptedCount } of sessions) {
    if (proposerNodeId === "" || draftedCount === 0) continue;
    const { drafted, accepted } = counts.get(proposerNodeId) ?? { drafted: 0, accepted: 0 };
    counts.set(proposerNodeId, {
      drafted: drafted + draftedCount,
      accepted: accepted + acceptedCount,
    });
  }
  return new Map(
    [...counts].map(([nodeId, { drafted, accepted }]) => [nodeId, accepted / drafted]),
  );
}
