/** What answers are held to, as a request says it. */

import { create } from "@bufbuild/protobuf";

import { BadRequest } from "./errors.js";
import { GrammarSchema, type Grammar } from "./generated/kakeya/v1/runtime_pb.js";

/** Of a schema's JSON, a regular expression or a grammar, in UTF-8. */
export const MAX_GRAMMAR_BYTES = 65_536;

/** What an answer may be: at most one of these. */
export interface GrammarOptions {
  /** JSON that fits this JSON schema, given as an object or as its JSON. */
  readonly jsonSchema?: Readonly<Record<string, unknown>> | string | undefined;
  /** A JSON object, whatever it has. */
  readonly jsonObject?: boolean | undefined;
  /** What this regular expression matches whole, in the syntax of Rust's regex crate. */
  readonly regex?: string | undefined;
  /** What the rule `start` of this Lark grammar derives, in llguidance's dialect. */
  readonly lark?: string | undefined;
}

/** What is given; undefined for nothing. Throws BadRequest, also for several. */
export function grammar(options: GrammarOptions): Grammar | undefined {
  const { jsonSchema, jsonObject, regex, lark } = options;
  const texts = { jsonSchema, regex, lark };
  const given = [
    ...Object.entries(texts).flatMap(([name, value]) => (value === undefined ? [] : [name])),
    ...(jsonObject ? ["jsonObject"] : []),
  ];
  if (given.length > 1) {
    throw refused(given[1]!, `an answer is held to one of ${given[0]!} and ${given[1]!}`);
  }
  if (jsonSchema !== undefined) {
    const text = typeof jsonSchema === "string" ? jsonSchema : schemaText(jsonSchema);
    return create(GrammarSchema, {
      kind: { case: "jsonSchema", value: checked("jsonSchema", text) },
    });
  }
  if (regex !== undefined) {
    return create(GrammarSchema, { kind: { case: "regex", value: checked("regex", regex) } });
  }
  if (lark !== undefined) {
    return create(GrammarSchema, { kind: { case: "lark", value: checked("lark", lark) } });
  }
  return jsonObject
    ? create(GrammarSchema, { kind: { case: "jsonObject", value: true } })
    : undefined;
}

function schemaText(schema: Readonly<Record<string, unknown>>): string {
  try {
    return JSON.stringify(schema);
  } catch (error) {
    throw refused("jsonSchema", `jsonSchema cannot be written as JSON: ${String(error)}`);
  }
}

function checked(field: string, text: string): string {
  if (typeof text !== "string" || text === "") {
    throw refused(field, `${field} is a text that is not empty`);
  }
  const size = new TextEncoder().encode(text).length;
  if (size > MAX_GRAMMAR_BYTES) {
    throw refused(field, `${field} is a text of at most 65,536 bytes, not ${size}`);
  }
  return text;
}

function refused(field: string, message: string): BadRequest {
  return new BadRequest(message, { metadata: { field } });
}
