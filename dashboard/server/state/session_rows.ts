import type { SessionActivity } from "@kakeya/runtime";

import type { Message, SessionView } from "../../shared/messages";
import { blockView, sessionView } from "../views/session_view";

/** Blocks that are kept of a session. */
const BLOCK_LIMIT = 256;
/** Milliseconds by which the wire may move the time that an age stands for. */
const JITTER_MS = 1500;

/** The sessions of all nodes, by node. */
export class SessionRows {
  readonly #tell: (message: Message) => void;
  readonly #clock: () => number;
  readonly #rows = new Map<string, Map<string, SessionView>>();

  constructor(tell: (message: Message) => void, clock: () => number) {
    this.#tell = tell;
    this.#clock = clock;
  }

  all(): SessionView[] {
    return [...this.#rows.values()].flatMap((rows) => [...rows.values()]);
  }

  /** Exactly these are on the node now. */
  replace(nodeId: string, activities: readonly SessionActivity[]): void {
    const present = new Set(activities.map(({ session }) => session.sessionId));
    for (const sessionId of this.#of(nodeId).keys()) {
      if (!present.has(sessionId)) this.ended(nodeId, sessionId, "unknown");
    }
    for (const activity of activities) {
      // The snapshot's blocks are the latest, those that are known among them.
      const known = this.#of(nodeId).get(activity.session.sessionId);
      const last = known?.blocks.at(-1);
      const fresh = activity.blocks.filter(
        (block) =>
          last === undefined ||
          block.generationNumber > last.generation ||
          (block.generationNumber === last.generation && block.firstIndex > last.firstIndex),
      );
      this.changed(nodeId, { ...activity, blocks: fresh });
    }
  }

  changed(nodeId: string, activity: SessionActivity): void {
    const rows = this.#of(nodeId);
    const known = rows.get(activity.session.sessionId);
    const view = sessionView(activity, nodeId, this.#clock());
    if (known !== undefined && Math.abs(known.openedAt - view.openedAt) < JITTER_MS) {
      view.openedAt = known.openedAt;
    }
    const blocks = activity.blocks.map(blockView);
    rows.set(view.sessionId, {
      ...view,
      blocks: [...(known?.blocks ?? []), ...blocks].slice(-BLOCK_LIMIT),
    });
    this.#tell({ type: "session", session: view, blocks });
  }

  ended(nodeId: string, sessionId: string, outcome: string): void {
    if (this.#of(nodeId).delete(sessionId)) {
      this.#tell({ type: "session-ended", nodeId, sessionId, outcome });
    }
  }

  /** The node is gone, and its sessions with it. */
  lost(nodeId: string, outcome: string): void {
    for (const sessionId of this.#of(nodeId).keys()) this.ended(nodeId, sessionId, outcome);
    this.#rows.delete(nodeId);
  }

  #of(nodeId: string): Map<string, SessionView> {
    let rows = this.#rows.get(nodeId);
    if (rows === undefined) {
      rows = new Map();
      this.#rows.set(nodeId, rows);
    }
    return rows;
  }
}
