/**
 * Chats as each family of models wants them: each has switches of its own.
 *
 * A template takes what is passed as `variables`; which names it knows is in the model's
 * chat_template.jinja. One that it does not know changes nothing.
 */

import type { ChatMessage, TextCodec } from "@kakeya/runtime/text";

/** The ids of a chat, for a family that can think before it answers. */
export type ThinkingFamily = (
  codec: TextCodec,
  messages: readonly ChatMessage[],
  options: { readonly thinking: boolean },
) => number[];

/** The ids of a chat, for a family without that switch. */
export type PlainFamily = (codec: TextCodec, messages: readonly ChatMessage[]) => number[];

/** Thinks unless told not to; then the prompt has an empty <think> block. */
const qwen3: ThinkingFamily = (codec, messages, { thinking }) =>
  codec.tokensForChat(messages, { variables: { enable_thinking: thinking } });

/** As Qwen3, but the prompt itself opens <think>: an answer begins within its thoughts. */
const qwen3_5: ThinkingFamily = (codec, messages, { thinking }) =>
  codec.tokensForChat(messages, { variables: { enable_thinking: thinking } });

/** Thinks when told to, which its template says in the system turn. */
const gemma4: ThinkingFamily = (codec, messages, { thinking }) =>
  codec.tokensForChat(messages, { variables: { enable_thinking: thinking } });

/** The switch of those that can reason is an effort; older templates know none. */
const mistral: ThinkingFamily = (codec, messages, { thinking }) =>
  codec.tokensForChat(messages, { variables: { reasoning_effort: thinking ? "high" : "none" } });

/** Has no switch. Its template names a day, which makes prompts differ from day to day. */
const llama3: PlainFamily = (codec, messages) =>
  codec.tokensForChat(messages, { variables: { date_string: "22 Nov 2026" } });

/** Has no switch and no system turn: the template puts those words before the user's. */
const gemma3: PlainFamily = (codec, messages) => codec.tokensForChat(messages);

export const THINKING: Readonly<Record<string, ThinkingFamily>> = {
  qwen3,
  qwen3_5,
  gemma4,
  mistral,
};
export const PLAIN: Readonly<Record<string, PlainFamily>> = { llama3, gemma3 };
