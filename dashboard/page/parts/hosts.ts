/** Machines: nodes that run on one of them share its memory. */

import type { NodeView } from "../../shared/messages";
import { usedBytes } from "./states";

export interface Memory {
  usedBytes: number;
  totalBytes: number;
}

/** The memory of the machines that these nodes run on, each machine's once. */
export function hostMemory(nodes: readonly NodeView[]): Memory {
  const hosts = new Map<string, Memory>();
  for (const node of nodes) {
    const known = hosts.get(node.hostId);
    // They look at different moments: what is told is the fuller look.
    hosts.set(node.hostId, {
      usedBytes: Math.max(usedBytes(node), known?.usedBytes ?? 0),
      totalBytes: Math.max(node.memoryTotalBytes, known?.totalBytes ?? 0),
    });
  }
  const all = [...hosts.values()];
  return {
    usedBytes: all.reduce((sum, host) => sum + host.usedBytes, 0),
    totalBytes: all.reduce((sum, host) => sum + host.totalBytes, 0),
  };
}

/** The other nodes on the machine of `node`. */
export function neighbours(node: NodeView, nodes: readonly NodeView[]): NodeView[] {
  return nodes.filter((other) => other.hostId === node.hostId && other.nodeId !== node.nodeId);
}
