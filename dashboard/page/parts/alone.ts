/** Why a session decodes alone. Pure. */

import type { SessionView } from "../../shared/messages";

export interface Alone {
  /** Empty where nothing says it. */
  why: string;
  /** It had a proposer, and lost it. */
  dropped: boolean;
}

/** Null where another node drafts for it. */
export function alone(view: SessionView): Alone | null {
  if (view.dropReason !== "") {
    return { why: view.dropReason.replaceAll("_", " ").toLowerCase(), dropped: true };
  }
  if (view.proposerNodeId !== "") return null;
  // A plan names its choice first, then why it is that one.
  return { why: view.planReasons[1] ?? "", dropped: false };
}

/** What the plan says besides: the choice and its numbers. */
export function otherReasons(view: SessionView): string[] {
  return alone(view)?.dropped === false
    ? view.planReasons.filter((_, index) => index !== 1)
    : view.planReasons;
}
