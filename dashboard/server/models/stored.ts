import { Unimplemented } from "@kakeya/runtime";

import type { StoredView } from "../../shared/messages";
import type { Access } from "../access";
import { answerOf, everyNode, type NodePlace } from "./every_node";

/**
 * What pulls brought to the disks of the nodes. `offsetOf` is this process's clock less that of the
 * node of an id, in milliseconds.
 */
export function storedModels(
  access: Access,
  nodes: readonly NodePlace[],
  offsetOf: (nodeId: string) => number,
): Promise<StoredView> {
  return everyNode(nodes, ({ nodeId, address }) =>
    answerOf(access, address, async (client, signal) => {
      const models = await client.fleet.storedModels({ signal }).catch((error: unknown) => {
        // A node that is too old to say has pulled nothing.
        if (error instanceof Unimplemented) return [];
        throw error;
      });
      return models.map(({ pulledAtUnix, ...model }) => ({
        ...model,
        pulledAt: pulledAtUnix > 0 ? pulledAtUnix * 1000 + offsetOf(nodeId) : 0,
      }));
    }),
  );
}
