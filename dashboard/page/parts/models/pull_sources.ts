import type { PullSource } from "@kakeya/runtime";

import type { PullView } from "../../../shared/messages";
import { bytes, plural } from "../format";

/**
 * Whom a pull copies from, in words: "from 2 nodes: studio, 3.1 GiB; mini-1", then of each node
 * that is taken from no more "mini-2 was left: it was silent for 10 s". None before that is known,
 * and for the hub. Pure.
 */
export function sourceTexts({ sources }: PullView): string[] {
  const giving = sources.filter(({ fault }) => fault === "");
  const left = sources.filter(({ fault }) => fault !== "");
  return [
    ...(giving.length === 0
      ? []
      : [`from ${plural(giving.length, "node")}: ${giving.map(given).join("; ")}`]),
    ...left.map(({ nodeName, fault }) => `${nodeName} was left: ${fault}`),
  ];
}

function given({ nodeName, doneBytes }: PullSource): string {
  return doneBytes > 0 ? `${nodeName}, ${bytes(doneBytes)}` : nodeName;
}
