/** Messages in the shape of OpenAI's chat completions, as chat templates take them. */

import { BadMessage, UnsupportedContent } from "../errors.js";
import type { ChatMessage } from "./chat-template.js";

type Fields = Readonly<Record<string, unknown>>;

const ROLES = ["system", "developer", "user", "assistant", "tool"];
// Names under which servers give a model's reasoning back.
const REASONING = ["reasoning_content", "reasoning", "thinking"];
const TOLD = ["role", "content", "refusal", "name", "tool_call_id", "tool_calls", ...REASONING];
// What answers carry besides and no template reads.
const SILENT = ["id", "annotations", "metadata", "weight", "cache_control", "reasoning_details"];
// What would change the answer, and cannot be said: where to say it instead.
const UNSUPPORTED: Readonly<Record<string, string>> = {
  audio: "give its transcript as content",
  images: "models here read text only",
  function_call: "give tool_calls",
  prefix: "render the text yourself and append what the answer is to begin with",
};
const TEXT_PARTS = ["text", "refusal"];

/**
 * The messages as `TextCodec.tokensForChat` takes them.
 *
 * Content parts become one text, "developer" becomes "system", the arguments of tool
 * calls become objects; an assistant's reasoning goes along. null stands for a field that
 * is not there, as with OpenAI. `field` of an error names what is wrong, as in
 * "messages[2].content[0].type". Throws BadMessage, and UnsupportedContent for what is
 * no text.
 */
export function fromOpenAIMessages(messages: readonly object[]): ChatMessage[] {
  if (!Array.isArray(messages) || messages.length === 0) {
    throw bad("messages", "messages is a list of at least one message");
  }
  return messages.map((each, place) => message(each, `messages[${place}]`));
}

function message(value: unknown, at: string): ChatMessage {
  const given = fieldsOf(value, at);
  checkKnown(given, at);
  const role = text(given, "role", at);
  if (!ROLES.includes(role)) {
    throw bad(`${at}.role`, `${at}.role is one of ${ROLES.join(", ")}, not ${shown(role)}`);
  }
  const calls = given["tool_calls"] ?? [];
  if (!Array.isArray(calls)) {
    throw bad(`${at}.tool_calls`, `${at}.tool_calls is a list of calls, not ${shown(calls)}`);
  }
  if (role !== "assistant" && !("content" in given)) {
    throw bad(`${at}.content`, `${at} has no content`);
  }
  const reasoning = REASONING.find((key) => key in given);
  return {
    // Templates know the older name of the same thing.
    role: role === "developer" ? "system" : role,
    content: content(given, at),
    ...("name" in given ? { name: text(given, "name", at) } : {}),
    ...("tool_call_id" in given ? { tool_call_id: text(given, "tool_call_id", at) } : {}),
    ...(reasoning === undefined ? {} : { reasoning_content: text(given, reasoning, at) }),
    ...(calls.length === 0
      ? {}
      : { tool_calls: calls.map((each, place) => call(each, `${at}.tool_calls[${place}]`)) }),
  };
}

/** Refuses a field that is not known, so that a mistyped one is not ignored. */
function checkKnown(given: Fields, at: string): void {
  for (const key of Object.keys(given)) {
    const field = `${at}.${key}`;
    const instead = Object.hasOwn(UNSUPPORTED, key) ? UNSUPPORTED[key] : undefined;
    if (instead !== undefined) {
      throw unsupported(field, `${field} cannot be told to a model here; ${instead}`);
    }
    if (!TOLD.includes(key) && !SILENT.includes(key)) {
      throw bad(field, `${field} is no field of a message: those are ${TOLD.join(", ")}`);
    }
  }
}

function content(given: Fields, at: string): string {
  const found = given["content"];
  if (found === undefined) {
    // An answer that was declined has its words there.
    return text(given, "refusal", at, "");
  }
  return Array.isArray(found)
    ? found.map((each, place) => part(each, `${at}.content[${place}]`)).join("")
    : text(given, "content", at);
}

function part(value: unknown, at: string): string {
  const given = fieldsOf(value, at);
  const kind = text(given, "type", at);
  if (!TEXT_PARTS.includes(kind)) {
    throw unsupported(
      `${at}.type`,
      `${at}.type is ${shown(kind)}; models here read text only, give type text`,
    );
  }
  return text(given, kind, at);
}

/** A call of an earlier answer; templates take its arguments as an object. */
function call(value: unknown, at: string): Fields {
  const given = fieldsOf(value, at);
  const kind = text(given, "type", at, "function");
  if (kind !== "function") {
    throw unsupported(`${at}.type`, `${at}.type is ${shown(kind)}; tools here are functions`);
  }
  const asked = fieldsOf(given["function"], `${at}.function`);
  return {
    ...("id" in given ? { id: text(given, "id", at) } : {}),
    type: "function",
    function: {
      name: text(asked, "name", `${at}.function`),
      arguments: callArguments(asked["arguments"] ?? {}, `${at}.function.arguments`),
    },
  };
}

function callArguments(given: unknown, at: string): unknown {
  if (typeof given === "string") {
    try {
      return JSON.parse(given || "{}");
    } catch {
      // What a model wrote is history, right or wrong.
      return given;
    }
  }
  if (typeof given !== "object" || Array.isArray(given)) {
    throw bad(at, `${at} is JSON, not ${shown(given)}`);
  }
  return given;
}

/** The fields of an object without its nulls. */
function fieldsOf(value: unknown, at: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw bad(at, `${at} is a JSON object, not ${shown(value)}`);
  }
  return Object.fromEntries(
    Object.entries(value).filter(([, each]) => each !== null && each !== undefined),
  );
}

function text(given: Fields, key: string, at: string, otherwise?: string): string {
  const value = given[key] ?? otherwise;
  if (value === undefined) {
    throw bad(`${at}.${key}`, `${at} has no ${key}`);
  }
  if (typeof value !== "string") {
    throw bad(`${at}.${key}`, `${at}.${key} is a string, not ${shown(value)}`);
  }
  return value;
}

/** A value in a message, cut short. */
function shown(value: unknown): string {
  const written = JSON.stringify(value) ?? String(value);
  return written.length <= 60 ? written : `${written.slice(0, 57)}...`;
}

function bad(field: string, problem: string): BadMessage {
  return new BadMessage(problem, { metadata: { field } });
}

function unsupported(field: string, problem: string): UnsupportedContent {
  return new UnsupportedContent(problem, { metadata: { field } });
}
