/**
 * Client of Kakeya Fleet: long token sessions on a fleet of local machines.
 *
 * `Client` is the way in; `@kakeya/runtime/text` turns text into token ids and
 * back.
 */

export { Answer } from "./answer.js";
export { Chat, type ChatTerms } from "./chat.js";
export { Client, type ChatOptions, type ClientOptions, type SessionOptions } from "./client.js";
export type { Message } from "./conversation.js";
export type { Owner, Pem, TlsOptions, TlsSource } from "./credentials.js";
export type { EmbedOptions } from "./embedding.js";
export * from "./errors.js";
export {
  Fleet,
  type CallOptions,
  type LoadOptions,
  type PlanOptions,
  type PullOptions,
  type UnloadOptions,
} from "./fleet.js";
export type { GrammarOptions } from "./grammar.js";
export type { GenerateOptions, SamplingOptions, SayOptions } from "./generate-options.js";
export { Generation } from "./generation.js";
export { ModelLoad } from "./model-load.js";
export { ModelPull } from "./model-pull.js";
export { Session } from "./session.js";
export { DEFAULT_TIMEOUTS, type Timeouts } from "./timeouts.js";
export type { TokenizerFiles } from "./tokenizer-cache.js";
export type { FetchedTokenizer } from "./tokenizer-fetch.js";
export * from "./generated/values.js";
export * from "./values/session.js";
export * from "./values/watch.js";
export { Watch } from "./watch.js";
export type { RestorerOptions } from "./wire/restorer.js";
