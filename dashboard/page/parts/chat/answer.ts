/** An answer as it grows. Pure. */

import type { ChatMessage, PlanView, Problem } from "../../../shared/messages";

/** A run of tokens of one kind. */
export interface Run {
  drafted: boolean;
  pieces: string[];
}

export interface AnswerState {
  phase: "opening" | "generating" | "done" | "stopped" | "failed";
  runs: readonly Run[];
  tokenCount: number;
  draftedCount: number;
  sessionKey: string;
  sessionId: string;
  nodeId: string;
  keptTokenCount: number;
  /** How far the prompt is read, while it is. */
  reading: { readCount: number; tokenCount: number } | null;
  plan?: PlanView;
  /** By this page's clock, in milliseconds; 0 while it did not happen. */
  startedAt: number;
  firstAt: number;
  lastAt: number;
  done?: Extract<ChatMessage, { type: "done" }>;
  notes: readonly string[];
  problem?: Problem;
}

/** Before the first word. */
export const ASKED: AnswerState = {
  phase: "opening",
  runs: [],
  tokenCount: 0,
  draftedCount: 0,
  sessionKey: "",
  sessionId: "",
  nodeId: "",
  keptTokenCount: 0,
  reading: null,
  startedAt: 0,
  firstAt: 0,
  lastAt: 0,
  notes: [],
};

/** The answer after a message that came at `at`. */
export function advanced(state: AnswerState, message: ChatMessage, at: number): AnswerState {
  switch (message.type) {
    case "reading": {
      const { readCount, tokenCount } = message;
      return { ...state, reading: { readCount, tokenCount } };
    }
    case "opened":
      return {
        ...state,
        phase: "generating",
        sessionKey: message.sessionKey,
        sessionId: message.sessionId,
        nodeId: message.nodeId,
        keptTokenCount: message.keptTokenCount,
        reading: null,
        plan: message.plan,
      };
    case "tokens": {
      const { pieces, drafted } = message;
      return {
        ...state,
        runs: grown(state.runs, pieces, drafted),
        tokenCount: state.tokenCount + pieces.length,
        draftedCount: state.draftedCount + drafted,
        firstAt: state.firstAt === 0 ? at : state.firstAt,
        lastAt: at,
      };
    }
    case "done":
      return { ...state, phase: "done", done: message };
    case "resumed":
      return {
        ...state,
        nodeId: message.nodeId,
        notes: [...state.notes, message.reason],
      };
    case "problem":
      return { ...state, phase: "failed", problem: message.problem };
  }
}

/** Runs with more pieces, of which the first `drafted` were drafted; equal neighbours are one run. */
export function grown(runs: readonly Run[], pieces: readonly string[], drafted: number): Run[] {
  const after = [...runs];
  const add = (part: readonly string[], isDrafted: boolean): void => {
    if (part.length === 0) return;
    const last = after.at(-1);
    if (last?.drafted === isDrafted) {
      after[after.length - 1] = { drafted: isDrafted, pieces: [...last.pieces, ...part] };
    } else after.push({ drafted: isDrafted, pieces: [...part] });
  };
  add(pieces.slice(0, drafted), true);
  add(pieces.slice(drafted), false);
  return after;
}

/** Tokens a second after the first; NaN before the second token. */
export function speed(state: AnswerState): number {
  const seconds = (state.lastAt - state.firstAt) / 1000;
  return seconds > 0 && state.tokenCount > 1 ? (state.tokenCount - 1) / seconds : Number.NaN;
}

/** All that was said. */
export function textOf({ runs }: AnswerState): string {
  return runs.map(({ pieces }) => pieces.join("")).join("");
}

/** Lengths of the runs in characters, by turns: the verifier's own, drafted, and so on. */
export function runLengths(runs: readonly Run[]): number[] {
  const lengths = runs.map(({ pieces }) => pieces.join("").length);
  return runs[0]?.drafted === true ? [0, ...lengths] : lengths;
}
