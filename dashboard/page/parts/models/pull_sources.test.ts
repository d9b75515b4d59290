import { expect, it } from "vitest";

import { sourceView } from "../../../tests/views";
import { sourceTexts } from "./pull_sources";

it("names the nodes that give, with what came of each, and those that were left, with why", () => {
  const sources = [
    sourceView("studio", 2 ** 30),
    sourceView("mini-1"),
    sourceView("mini-2", 5, "it was silent for 10 s"),
  ];
  const pull = { sources, problem: null };
  expect(sourceTexts(pull)).toEqual([
    "from 2 nodes: studio, 1.00 GiB; mini-1",
    "mini-2 was left: it was silent for 10 s",
  ]);
  expect(sourceTexts({ ...pull, sources: [] })).toEqual([]);
});
