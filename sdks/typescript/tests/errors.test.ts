/** The error tree is the Python client's. */

import { execFileSync } from "node:child_process";

import { expect, test } from "vitest";

import * as kakeya from "../src/index.js";
import { ROOT } from "./child.js";

const PYTHON = `
import json
from kakeya import errors
print(json.dumps({
    name: [kind.__bases__[0].__name__, kind.default_reason, kind.default_code]
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.KakeyaError)
}))
`;

type Tree = Record<string, [base: string, reason: string, code: string]>;

test("every class has its twin, with the same base, reason and code", () => {
  const out = execFileSync(`${ROOT}.venv/bin/python`, ["-c", PYTHON], { encoding: "utf8" });
  const theirs = JSON.parse(out) as Tree;
  theirs["KakeyaError"]?.splice(0, 1, "Error");
  const ours: Tree = {};
  for (const [name, kind] of Object.entries(kakeya)) {
    if (typeof kind === "function" && isErrorClass(kind)) {
      const base: unknown = Reflect.get(Object.getPrototypeOf(kind) as object, "name");
      ours[name] = [String(base), kind.defaultReason, kind.defaultCode];
    }
  }
  expect(ours).toEqual(theirs);
});

function isErrorClass(kind: object): kind is typeof kakeya.KakeyaError {
  return kind === kakeya.KakeyaError || kakeya.KakeyaError.isPrototypeOf(kind);
}
