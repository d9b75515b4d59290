import type { NodeView, Sample } from "./messages";

/** Samples that are kept of a node, one a second. */
export const SAMPLE_LIMIT = 900;

/** The node after a second: what its load says is as of the sample. */
export function withLoadOf(
  node: Omit<NodeView, "samples">,
  sample: Sample,
): Omit<NodeView, "samples"> {
  return {
    ...node,
    heardAt: Math.max(node.heardAt, sample.at),
    sessionCount: sample.sessionCount,
    generatingCount: sample.generatingCount,
    kvBytes: sample.kvBytes,
    memoryFreeBytes: sample.memoryFreeBytes,
    archiveBytes: sample.archiveBytes,
  };
}
