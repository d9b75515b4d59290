/** An answer of the playground, as it grows. */

import { batch, signal } from "@preact/signals";

import type {
  BlockView,
  PlanView,
  PlaygroundMessage,
  PlaygroundRequest,
  Problem,
} from "../../shared/messages";
import { problem } from "../../shared/problem";
import { close, generate, ProblemError } from "../state/ask";

/** A run of tokens of one kind. */
export interface Run {
  drafted: boolean;
  pieces: string[];
}

export interface AnswerState {
  phase: "idle" | "opening" | "generating" | "done" | "stopped" | "failed";
  request?: PlaygroundRequest;
  runs: readonly Run[];
  tokenCount: number;
  draftedCount: number;
  sessionId: string;
  nodeId: string;
  promptTokenCount: number;
  plan?: PlanView;
  /** By this page's clock, in milliseconds; 0 while it did not happen. */
  startedAt: number;
  firstAt: number;
  lastAt: number;
  done?: Extract<PlaygroundMessage, { type: "done" }>;
  notes: readonly string[];
  problem?: Problem;
  blocks: readonly BlockView[];
}

const IDLE: AnswerState = {
  phase: "idle",
  runs: [],
  tokenCount: 0,
  draftedCount: 0,
  sessionId: "",
  nodeId: "",
  promptTokenCount: 0,
  startedAt: 0,
  firstAt: 0,
  lastAt: 0,
  notes: [],
  blocks: [],
};

/** Survives a walk to another view and back. */
export const answer = signal<AnswerState>(IDLE);

let running: AbortController | undefined;
let opened = "";

/** Milliseconds since the page was loaded. */
const now = (): number => performance.now();

/** Asks; what came before is gone. The session of the last answer is closed. */
export async function begin(request: PlaygroundRequest): Promise<void> {
  running?.abort();
  const stopper = new AbortController();
  running = stopper;
  closeOpened();
  answer.value = { ...IDLE, phase: "opening", request, startedAt: now() };
  try {
    for await (const message of generate(request, stopper.signal)) {
      if (running !== stopper) return;
      answer.value = advanced(answer.peek(), message, now());
      if (message.type === "opened") opened = message.sessionKey;
    }
    const words = "The dashboard's process ended the stream without an answer.";
    settle(stopper, "failed", problem("STREAM_ENDED", words));
  } catch (error) {
    if (stopper.signal.aborted) return settle(stopper, "stopped");
    if (!(error instanceof ProblemError) && !(error instanceof TypeError)) throw error;
    const words = "The stream from the dashboard's process broke off.";
    settle(stopper, "failed", problem("DASHBOARD_UNREACHABLE", words));
  }
}

/** Stops the work on the node; what was generated stays. */
export function stop(): void {
  running?.abort();
}

/** Closes the session of the last answer, also when the page goes away. */
export function closeOpened(): void {
  if (opened === "") return;
  const key = opened;
  opened = "";
  close(key).catch(() => undefined);
}

/** An answer that neither ended nor failed by itself is settled. */
function settle(stopper: AbortController, phase: "stopped" | "failed", problem?: Problem): void {
  if (running !== stopper) return;
  const state = answer.peek();
  if (state.phase !== "opening" && state.phase !== "generating") return;
  batch(() => {
    answer.value = { ...state, phase, ...(problem === undefined ? {} : { problem }) };
  });
}

/** The answer after a message that came at `at`. */
export function advanced(state: AnswerState, message: PlaygroundMessage, at: number): AnswerState {
  switch (message.type) {
    case "opened":
      return {
        ...state,
        phase: "generating",
        sessionId: message.sessionId,
        nodeId: message.nodeId,
        promptTokenCount: message.promptTokenCount,
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
      return { ...state, phase: "done", done: message, blocks: message.blocks };
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
