/**
 * Text to token ids and back: `@kakeya/runtime/text`.
 *
 * Needs `@huggingface/tokenizers` and `@huggingface/jinja` beside this package.
 */

import type { Client } from "../client.js";
import type { CallOptions } from "../fleet.js";
import { TextCodec } from "./codec.js";

export type { ChatMessage } from "./chat-template.js";
export { TextCodec, type ChatOptions } from "./codec.js";
export { Detokenizer } from "./detokenizer.js";
export { fromOpenAIMessages } from "./openai-messages.js";

// Codecs of one client, by the content of their files.
const known = new WeakMap<Client, Map<string, TextCodec>>();

/**
 * The tokenizer and chat template of `model`, from a node that serves it.
 *
 * Every file is checked and kept below `$XDG_CACHE_HOME/kakeya/tokenizers`, so that
 * it travels once. Throws ModelNotFound, ModelServedElsewhere, TokenizerNotFound
 * (served without one), TokenizerMismatch, TextExtraMissing, TransportError.
 */
export async function textCodec(
  client: Client,
  model: string,
  options: CallOptions = {},
): Promise<TextCodec> {
  const { key, files } = await client.tokenizer(model, options);
  const codecs = known.get(client) ?? new Map<string, TextCodec>();
  known.set(client, codecs);
  let codec = codecs.get(key);
  if (codec === undefined) {
    codec = await TextCodec.fromFiles(files, `${model} at ${client.address}`);
    codecs.set(key, codec);
  }
  return codec;
}
