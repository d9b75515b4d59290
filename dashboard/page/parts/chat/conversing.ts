/** The chats of this page, and the answer that comes now. */

import { batch, computed, signal } from "@preact/signals";

import type { AskedStrategy, ChatRequest } from "../../../shared/messages";
import { problem } from "../../../shared/problem";
import { close, generate, ProblemError } from "../../state/ask";
import { node } from "../../state/fleet";
import { advanced, ASKED, runLengths, speed, textOf, type AnswerState } from "./answer";
import {
  forget,
  forgetAll,
  keep,
  keptChats,
  type AnswerFacts,
  type Chat,
  type Kept,
  type Turn,
} from "./store";

/** How answers are asked for, in every chat of this page. */
export interface Terms {
  mode: "chat" | "text";
  maxTokens: number;
  temperature: number;
  /** As typed: empty leaves it to the node. */
  seed: string;
  speculation: "auto" | "off";
  kvStrategy: AskedStrategy;
}

export const terms = signal<Terms>({
  mode: "chat",
  maxTokens: 2048,
  temperature: 0,
  seed: "",
  speculation: "auto",
  kvStrategy: "auto",
});

/** The latest first; one without turns is not among them. */
export const chats = signal<readonly Chat[]>(keptHere((kept) => keptChats(kept)) ?? []);
/** The one that is shown. */
export const current = signal<Chat>(fresh());
/** What comes, or came to no good; null between answers. */
export const live = signal<{ chatId: string; state: AnswerState } | null>(null);
/** Whether the browser keeps what is said. */
export const isKept = signal(true);
/** By chat: the session that its latest answer came from, as the page names sessions. */
export const sessionOf = signal<ReadonlyMap<string, string>>(new Map());

/** Whether an answer comes in the chat that is shown. */
export const isAnswering = computed(
  () =>
    live.value?.chatId === current.value.id &&
    (live.value.state.phase === "opening" || live.value.state.phase === "generating"),
);

/** By chat: what the process calls the session that holds it. */
const sessionKeys = new Map<string, string>();
let running: { chatId: string; stopper: AbortController } | undefined;

export function newChat(): void {
  current.value = { ...fresh(), model: current.peek().model, system: current.peek().system };
}

export function openChat(id: string): void {
  const found = chats.peek().find((chat) => chat.id === id);
  if (found !== undefined) current.value = found;
}

/** Changes what the chat that is shown is asked with. */
export function change(part: Partial<Pick<Chat, "model" | "system">>): void {
  current.value = { ...current.peek(), ...part };
}

/** The person's next words. */
export function send(content: string, model: string): void {
  const chat = current.peek();
  const turns = isLastUnanswered(chat) ? chat.turns.slice(0, -1) : chat.turns;
  ask({ ...chat, model, turns: [...turns, { role: "user", content }] });
}

/** Asks the question at `index` in other words: what followed it is gone. */
export function edit(index: number, content: string, model: string): void {
  const chat = current.peek();
  ask({ ...chat, model, turns: [...chat.turns.slice(0, index), { role: "user", content }] });
}

/** Answers the latest question before `index` again. */
export function retry(index: number, model: string): void {
  const chat = current.peek();
  const before = chat.turns.slice(0, index);
  const question = before.findLastIndex(({ role }) => role === "user");
  if (question >= 0) ask({ ...chat, model, turns: before.slice(0, question + 1) });
}

/** Stops the work on the node; what was said stays. */
export function stop(): void {
  running?.stopper.abort();
}

export function remove(id: string): void {
  if (live.peek()?.chatId === id) stop();
  keptHere((kept) => forget(kept, id));
  batch(() => {
    chats.value = chats.peek().filter((chat) => chat.id !== id);
    if (current.peek().id === id) newChat();
  });
  closeSession(id);
}

export function removeAll(): void {
  stop();
  keptHere(forgetAll);
  batch(() => {
    chats.value = [];
    newChat();
  });
  closeSessions();
}

/** Closes the chats' sessions, also when the page goes away: another one opens anew. */
export function closeSessions(): void {
  for (const id of [...sessionKeys.keys()]) closeSession(id);
}

/** Follows what other pages of this browser keep; returns what stops it. */
export function followKept(): () => void {
  const follow = (): void => {
    const known = keptHere((kept) => keptChats(kept));
    if (known !== undefined) chats.value = known;
  };
  window.addEventListener("storage", follow);
  return () => window.removeEventListener("storage", follow);
}

function closeSession(id: string): void {
  const key = sessionKeys.get(id);
  sessionKeys.delete(id);
  if (key !== undefined) close(key).catch(() => undefined);
}

/** The latest question waits for an answer: it failed, or was stopped before the first word. */
function isLastUnanswered({ turns }: Chat): boolean {
  return turns.at(-1)?.role === "user";
}

function ask(chat: Chat): void {
  put({ ...chat, at: Date.now() });
  void answer(chat);
}

async function answer(chat: Chat): Promise<void> {
  running?.stopper.abort();
  const stopper = new AbortController();
  const { id } = chat;
  const own = { chatId: id, stopper };
  running = own;
  let state: AnswerState = { ...ASKED, startedAt: performance.now() };
  const show = (): void => {
    if (running === own) live.value = { chatId: id, state };
  };
  const soon = onceAFrame(show);
  show();
  try {
    for await (const message of generate(requestOf(chat), stopper.signal)) {
      state = advanced(state, message, performance.now());
      if (message.type === "opened") {
        sessionKeys.set(id, message.sessionKey);
        const { nodeId, sessionId } = message;
        sessionOf.value = new Map([...sessionOf.peek(), [id, `${nodeId}/${sessionId}`]]);
      }
      soon();
    }
    if (state.phase === "opening" || state.phase === "generating") {
      const words = "The dashboard's process ended the stream without an answer.";
      state = { ...state, phase: "failed", problem: problem("STREAM_ENDED", words) };
    }
  } catch (error) {
    if (stopper.signal.aborted) state = { ...state, phase: "stopped" };
    else {
      if (!(error instanceof ProblemError) && !(error instanceof TypeError)) throw error;
      const words = "The stream from the dashboard's process broke off.";
      state = { ...state, phase: "failed", problem: problem("DASHBOARD_UNREACHABLE", words) };
    }
  }
  batch(() => {
    // The chat may have gone on from an earlier turn meanwhile: its answer is another one then.
    if (running === own || running?.chatId !== id) takeIn(chat, state);
    if (running !== own) return;
    // Nothing of it is shown any more, were a frame still asked for.
    running = undefined;
    live.value = state.problem === undefined ? null : { chatId: id, state };
  });
}

/** The answer, as far as it came, is a turn of its chat, if that is still there. */
function takeIn(chat: Chat, state: AnswerState): void {
  const content = textOf(state);
  const now = chatOf(chat.id);
  if (content === "" || now === undefined) return;
  const turn: Turn = { role: "assistant", content, facts: factsOf(chat, state) };
  put({ ...now, at: Date.now(), turns: [...chat.turns, turn] });
}

function factsOf(chat: Chat, state: AnswerState): AnswerFacts {
  const { done, plan } = state;
  const measured = done !== undefined && done.seconds > 0;
  const rate = measured ? done.generatedTokenCount / done.seconds : speed(state);
  const first = done?.firstTokenSeconds ?? (state.firstAt - state.startedAt) / 1000;
  const nameOf = (nodeId: string): string => node(nodeId).peek()?.name ?? "";
  return {
    model: chat.model,
    verifier: nameOf(state.nodeId),
    proposer: plan?.proposer == null ? "" : nameOf(plan.proposer.nodeId),
    tokenCount: state.tokenCount,
    tokensPerSecond: Number.isFinite(rate) ? rate : 0,
    firstTokenSeconds: first,
    draftedCount: done?.draftedCount ?? 0,
    acceptedCount: done?.acceptedCount ?? 0,
    keptTokenCount: state.keptTokenCount,
    ended: done === undefined ? "left" : done.stopReason.toLowerCase(),
    runs: runLengths(state.runs),
  };
}

function requestOf({ id, model, system, turns }: Chat): ChatRequest {
  const { seed, ...rest } = terms.peek();
  const number = Number.parseInt(seed, 10);
  return {
    sessionKey: sessionKeys.get(id) ?? "",
    model,
    system,
    turns: turns.map(({ role, content }) => ({ role, content })),
    ...rest,
    ...(Number.isSafeInteger(number) && number >= 0 ? { seed: number } : {}),
  };
}

function chatOf(id: string): Chat | undefined {
  const shown = current.peek();
  return shown.id === id ? shown : chats.peek().find((chat) => chat.id === id);
}

/** Puts a chat first, shows it where it is the one that is shown, and keeps it. */
function put(chat: Chat): void {
  batch(() => {
    chats.value = [chat, ...chats.peek().filter(({ id }) => id !== chat.id)];
    if (current.peek().id === chat.id) current.value = chat;
  });
  isKept.value = keptHere((kept) => keep(kept, chat)) ?? false;
}

function fresh(): Chat {
  return { id: crypto.randomUUID(), at: Date.now(), model: "", system: "", turns: [] };
}

/** Does it with what this browser keeps; undefined where it keeps nothing for this page. */
function keptHere<Result>(act: (kept: Kept) => Result): Result | undefined {
  let kept: Storage;
  try {
    kept = window.localStorage;
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    return undefined;
  }
  return act(kept);
}

/** Calls `act` in the next frame, however often it is asked for; without one on a hidden page. */
function onceAFrame(act: () => void): () => void {
  let isWaiting = false;
  const now = (): void => {
    isWaiting = false;
    act();
  };
  return () => {
    if (isWaiting) return;
    isWaiting = true;
    if (document.hidden) setTimeout(now, 250);
    else requestAnimationFrame(now);
  };
}
