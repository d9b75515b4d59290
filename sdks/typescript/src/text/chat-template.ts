/** Chat templates: they come from the hub, and reach only what they are given. */

import type { Template } from "@huggingface/jinja";

import { ChatTemplateError } from "../errors.js";
import { templateLibrary } from "./peers.js";

/** A message of a chat: `role` and `content`, and what else the template knows. */
export type ChatMessage = Readonly<Record<string, unknown>>;

// Names under which a message's reasoning is passed; templates read the first.
const REASONING = ["reasoning_content", "thinking", "reasoning"];

/** What a template is rendered with. */
export interface ChatVariables {
  readonly messages: readonly ChatMessage[];
  /** JSON schemas of functions; null for none. */
  readonly tools: readonly unknown[] | null;
  readonly addGenerationPrompt: boolean;
  /** The template's own variables. */
  readonly variables: Readonly<Record<string, unknown>>;
}

/** A compiled template. */
export class ChatTemplate {
  readonly #template: Template;

  private constructor(template: Template) {
    this.#template = template;
  }

  /** Throws ChatTemplateError when it cannot be compiled, and TextExtraMissing. */
  static async compile(source: string): Promise<ChatTemplate> {
    const library = await templateLibrary();
    try {
      return new ChatTemplate(new library.Template(source));
    } catch (error) {
      throw failure("the model's chat template cannot be read", error);
    }
  }

  /** The chat's text. Throws ChatTemplateError, with the template's own words. */
  render({ messages, tools, addGenerationPrompt, variables }: ChatVariables): string {
    if (messages.length === 0) {
      throw new ChatTemplateError("a chat without messages: give at least one");
    }
    try {
      return this.#template.render({
        documents: null,
        ...structuredClone(variables),
        messages: messages.map((message) => withReasoning(structuredClone(message))),
        tools: structuredClone(tools),
        add_generation_prompt: addGenerationPrompt,
      });
    } catch (error) {
      throw failure("the model's chat template does not take this chat", error);
    }
  }
}

/** A message without its nulls, its reasoning under the names that templates read. */
function withReasoning(message: ChatMessage): Record<string, unknown> {
  // Clients send null content and tool calls; templates would write "None".
  const given = Object.fromEntries(
    Object.entries(message).filter(([, value]) => value !== null && value !== undefined),
  );
  const name = REASONING.find((each) => each in given);
  return name === undefined
    ? given
    : { thinking: given[name], ...given, reasoning_content: given[name] };
}

function failure(what: string, cause: unknown): ChatTemplateError {
  const detail = cause instanceof Error ? cause.message : String(cause);
  const error = cause instanceof Error ? cause.name : typeof cause;
  return new ChatTemplateError(
    `${what} (${detail}): change the messages or tools to what the template takes, or ` +
      "render the text yourself",
    { metadata: { detail, error }, cause },
  );
}
