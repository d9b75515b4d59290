/**
 * Chats as this browser keeps them: a key for each, so that two pages do not overwrite each
 * other's; the oldest go when there are too many or they are too large.
 */

import type { TurnView } from "../../../shared/messages";

/** How an answer came about. */
export interface AnswerFacts {
  model: string;
  /** Names of the nodes; empty where none drafted. */
  verifier: string;
  proposer: string;
  tokenCount: number;
  tokensPerSecond: number;
  firstTokenSeconds: number;
  /** Of the drafts for it. */
  draftedCount: number;
  acceptedCount: number;
  /** Of the tokens before it: those that were computed already. */
  keptTokenCount: number;
  /** "stop_token", "max_tokens" and the like, or "left" where it was stopped or broke off. */
  ended: string;
  /** Lengths in characters, by turns: the verifier's own, drafted, the verifier's own, ... */
  runs: number[];
}

export interface Turn extends TurnView {
  /** Of answers. */
  facts?: AnswerFacts;
}

export interface Chat {
  id: string;
  /** Milliseconds since 1970, by this browser's clock, of its last change. */
  at: number;
  model: string;
  system: string;
  turns: Turn[];
}

/** What of `Storage` is needed. */
export type Kept = Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">;

const PREFIX = "kakeya-chat-";
export const CHAT_LIMIT = 50;
/** Of all chats together, in characters: a browser keeps some five million for a page. */
export const CHARACTER_LIMIT = 2_000_000;
const TITLE_LENGTH = 60;

/** The beginning of its first question. */
export function titleOf({ turns }: Pick<Chat, "turns">): string {
  const words = turns[0]?.content.trim().split("\n", 1)[0] ?? "";
  if (words === "") return "New chat";
  return words.length > TITLE_LENGTH ? `${words.slice(0, TITLE_LENGTH - 1)}…` : words;
}

/** Those that are kept, the latest first; what is none is left alone. */
export function keptChats(kept: Kept): Chat[] {
  return ids(kept)
    .flatMap((id) => parsed(id, kept.getItem(PREFIX + id)))
    .sort((one, other) => other.at - one.at);
}

/** Keeps a chat; others that are older make room. Answers whether the browser keeps it. */
export function keep(kept: Kept, chat: Chat): boolean {
  const { id, ...rest } = chat;
  const text = JSON.stringify(rest);
  if (text.length > CHARACTER_LIMIT) return false;
  const others = keptChats(kept).filter((each) => each.id !== id);
  const sizes = others.map((each) => kept.getItem(PREFIX + each.id)?.length ?? 0);
  let size = sizes.reduce((sum, each) => sum + each, text.length);
  const dropOldest = (): void => {
    const oldest = others.pop();
    size -= sizes.pop() ?? 0;
    if (oldest !== undefined) forget(kept, oldest.id);
  };
  while (others.length >= CHAT_LIMIT || size > CHARACTER_LIMIT) dropOldest();
  for (;;) {
    try {
      kept.setItem(PREFIX + id, text);
      return true;
    } catch (error) {
      if (!(error instanceof DOMException)) throw error;
      // The page's other keys, or a browser that keeps less: older chats make room.
      if (others.length === 0) return false;
      dropOldest();
    }
  }
}

export function forget(kept: Kept, id: string): void {
  kept.removeItem(PREFIX + id);
}

export function forgetAll(kept: Kept): void {
  for (const id of ids(kept)) forget(kept, id);
}

function ids(kept: Kept): string[] {
  const keys = Array.from({ length: kept.length }, (_, index) => kept.key(index) ?? "");
  return keys.filter((key) => key.startsWith(PREFIX)).map((key) => key.slice(PREFIX.length));
}

/** The chat that a text is; none for what another program, or another version, has left there. */
function parsed(id: string, text: string | null): Chat[] {
  let value: unknown;
  try {
    value = JSON.parse(text ?? "");
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return [];
  }
  if (!isRecord(value)) return [];
  const { at, model, system, turns } = value;
  const isChat =
    typeof at === "number" &&
    typeof model === "string" &&
    typeof system === "string" &&
    Array.isArray(turns) &&
    turns.every(isTurn);
  return isChat ? [{ id, at, model, system, turns: turns as Turn[] }] : [];
}

function isTurn(value: unknown): boolean {
  if (!isRecord(value)) return false;
  const { role, content, facts } = value;
  if ((role !== "user" && role !== "assistant") || typeof content !== "string") return false;
  return facts === undefined || isFacts(facts);
}

const NUMBERS = [
  "tokenCount",
  "tokensPerSecond",
  "firstTokenSeconds",
  "draftedCount",
  "acceptedCount",
  "keptTokenCount",
] as const satisfies readonly (keyof AnswerFacts)[];
const WORDS = [
  "model",
  "verifier",
  "proposer",
  "ended",
] as const satisfies readonly (keyof AnswerFacts)[];

function isFacts(value: unknown): boolean {
  return (
    isRecord(value) &&
    NUMBERS.every((name) => typeof value[name] === "number") &&
    WORDS.every((name) => typeof value[name] === "string") &&
    Array.isArray(value["runs"]) &&
    value["runs"].every((length) => typeof length === "number" && length >= 0)
  );
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
