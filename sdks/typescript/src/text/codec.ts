/** Text to token ids and back, on the client's side of a session. */

import type { Tokenizer } from "@huggingface/tokenizers";

import { ChatTemplateNotFound, TokenizerNotFound } from "../errors.js";
import type { TokenizerFiles } from "../tokenizer-cache.js";
import { ChatTemplate, type ChatMessage } from "./chat-template.js";
import { Detokenizer } from "./detokenizer.js";
import { tokenizerLibrary } from "./peers.js";
import { readFiles, readFolder, type TokenizerFolder } from "./tokenizer-folder.js";

/** How a chat becomes text. */
export interface ChatOptions {
  /** JSON schemas of functions that the model may call. */
  readonly tools?: readonly unknown[] | undefined;
  /** Whether the answer is opened; true unless given. */
  readonly addGenerationPrompt?: boolean | undefined;
  /** The template's own variables, such as `{ enable_thinking: false }`. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
}

/** A model's tokenizer and chat template. */
export class TextCodec {
  readonly #folder: TokenizerFolder;
  readonly #tokenizer: Tokenizer;
  readonly #templates: ReadonlyMap<string, ChatTemplate>;

  private constructor(
    folder: TokenizerFolder,
    tokenizer: Tokenizer,
    templates: ReadonlyMap<string, ChatTemplate>,
  ) {
    this.#folder = folder;
    this.#tokenizer = tokenizer;
    this.#templates = templates;
  }

  /**
   * The tokenizer of a local folder in the hub's format; never asks the network.
   *
   * Throws TextExtraMissing, TokenizerNotFound, ChatTemplateError.
   */
  static async fromFolder(path: string): Promise<TextCodec> {
    return TextCodec.#make(await readFolder(path), path);
  }

  /** The tokenizer of these files, which `source` names to people; throws as `fromFolder`. */
  static async fromFiles(files: TokenizerFiles, source: string): Promise<TextCodec> {
    return TextCodec.#make(readFiles(files, source), source);
  }

  static async #make(folder: TokenizerFolder, source: string): Promise<TextCodec> {
    const library = await tokenizerLibrary();
    let tokenizer: Tokenizer;
    try {
      tokenizer = new library.Tokenizer(folder.tokenizer, {});
    } catch (error) {
      const detail = error instanceof Error ? error.message : String(error);
      throw new TokenizerNotFound(
        `the tokenizer of ${source} cannot be read (${detail}): copy it again from the model`,
        { metadata: { source, detail }, cause: error },
      );
    }
    const templates = new Map<string, ChatTemplate>();
    for (const [name, template] of folder.templates) {
      templates.set(name, await ChatTemplate.compile(template));
    }
    return new TextCodec(folder, tokenizer, templates);
  }

  /** The tokenizer's digest, as cards have it: SHA-256 in hexadecimal. */
  get digest(): string {
    return this.#folder.digest;
  }

  /** The id that ends a text; null when there is none. */
  get eosTokenId(): number | null {
    const eos = this.#folder.namedTokens.get("eos_token");
    return eos === undefined ? null : (this.#tokenizer.token_to_id(eos) ?? null);
  }

  /** Ids that end an answer, for sessions: the model's own, else `eosTokenId`. */
  get stopTokenIds(): readonly number[] {
    const { stopTokenIds } = this.#folder;
    const eos = this.eosTokenId;
    return stopTokenIds.length > 0 || eos === null ? stopTokenIds : [eos];
  }

  /** Whether `renderChat` can work. */
  get hasChatTemplate(): boolean {
    return this.#templates.size > 0;
  }

  /** Ids of `text`; with `addSpecialTokens` also those that open or end a text. */
  encode(text: string, options: { addSpecialTokens?: boolean | undefined } = {}): number[] {
    const { addSpecialTokens = false } = options;
    return this.#tokenizer.encode(text, { add_special_tokens: addSpecialTokens }).ids;
  }

  /** Text of all `tokenIds`, with U+FFFD for bytes that are no character. */
  decode(
    tokenIds: readonly number[],
    options: { skipSpecialTokens?: boolean | undefined } = {},
  ): string {
    // Ids beyond the vocabulary have no text.
    const known = tokenIds.filter((id) => this.#tokenizer.id_to_token(id) !== undefined);
    return known.length === 0
      ? ""
      : this.#tokenizer.decode(known, {
          skip_special_tokens: options.skipSpecialTokens ?? false,
          clean_up_tokenization_spaces: false,
        });
  }

  /** For a stream of ids, as `Session.generate` gives them. */
  detokenizer(options: { skipSpecialTokens?: boolean | undefined } = {}): Detokenizer {
    return new Detokenizer((ids) => this.decode(ids, options));
  }

  /**
   * Ids of a chat by the model's template, ready to open a session with, or to append.
   *
   * As `renderChat`, encoded without special tokens, because the template has its own.
   * `variables` are the template's: the thinking switch of Qwen3's templates is
   * `{ enable_thinking: false }`. Throws what `renderChat` throws.
   */
  tokensForChat(messages: readonly ChatMessage[], options: ChatOptions = {}): number[] {
    return this.encode(this.renderChat(messages, options));
  }

  /**
   * The text of a chat by the model's template.
   *
   * Encode it without special tokens: the template has its own. Throws
   * ChatTemplateNotFound, ChatTemplateError.
   */
  renderChat(messages: readonly ChatMessage[], options: ChatOptions = {}): string {
    const { tools, addGenerationPrompt = true, variables } = options;
    return this.#template(tools === undefined ? "default" : "tool_use").render({
      messages,
      tools: tools ?? null,
      addGenerationPrompt,
      variables: { ...Object.fromEntries(this.#folder.namedTokens), ...variables },
    });
  }

  #template(name: string): ChatTemplate {
    const template = this.#templates.get(name) ?? this.#templates.get("default");
    if (template === undefined) {
      const names = [...this.#templates.keys()].sort().join(", ");
      throw new ChatTemplateNotFound(
        `the model has no chat template${names && `: it has ${names} alone`}; give its text as ` +
          "it is, or take a model that was trained for chats",
      );
    }
    return template;
  }
}
