/** Whom a pull copies from, in words. Pure. */

import type { PullView } from "../../../shared/messages";
import { bytes, plural } from "../format";

/** "from 2 nodes: studio, 3.1 GiB; mini-1, 1.2 GiB"; empty before that is known, and for the hub. */
export function sourcesText({ sources }: PullView): string {
  const giving = sources.filter(({ fault }) => fault === "");
  // At the end of one that failed none may be left.
  if (giving.length === 0) return "";
  const each = giving.map(({ nodeName, doneBytes }) =>
    doneBytes > 0 ? `${nodeName}, ${bytes(doneBytes)}` : nodeName,
  );
  return `from ${plural(giving.length, "node")}: ${each.join("; ")}`;
}

/** "mini-1 was left: it was silent for 10 s", one for each node that is taken from no more. */
export function leftTexts({ sources }: PullView): string[] {
  return sources
    .filter(({ fault }) => fault !== "")
    .map(({ nodeName, fault }) => `${nodeName} was left: ${fault}`);
}
