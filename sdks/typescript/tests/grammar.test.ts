import { expect, test } from "vitest";

import { grammar, MAX_GRAMMAR_BYTES, type GrammarOptions } from "../src/grammar.js";
import { BadRequest } from "../src/index.js";

test.each<[GrammarOptions, unknown]>([
  [{}, undefined],
  [{ jsonObject: false, regex: undefined }, undefined],
  [{ jsonObject: true }, { case: "jsonObject", value: true }],
  [{ regex: "a+" }, { case: "regex", value: "a+" }],
  [{ lark: "start: A" }, { case: "lark", value: "start: A" }],
  [{ jsonSchema: '{ "a": 1 }' }, { case: "jsonSchema", value: '{ "a": 1 }' }],
  [{ jsonSchema: { b: [1, 2.5], a: "é" } }, { case: "jsonSchema", value: '{"b":[1,2.5],"a":"é"}' }],
])("what is given is sent: %o", (options, kind) => {
  expect(grammar(options)?.kind).toEqual(kind);
});

const recursive: Record<string, unknown> = {};
recursive["a"] = recursive;

test.each<[GrammarOptions, string]>([
  [{ regex: "a", lark: "b" }, "lark"],
  [{ jsonObject: true, jsonSchema: {} }, "jsonObject"],
  [{ regex: "" }, "regex"],
  [{ lark: 3 as unknown as string }, "lark"],
  [{ jsonSchema: recursive }, "jsonSchema"],
  [{ regex: "é".repeat(MAX_GRAMMAR_BYTES / 2 + 1) }, "regex"],
])("what cannot be sent is named: %#", (options, field) => {
  expect(() => grammar(options)).toThrow(BadRequest);
  try {
    grammar(options);
  } catch (error) {
    expect((error as BadRequest).metadata["field"]).toBe(field);
  }
});
