import { expect, it } from "vitest";

import { sourceView } from "../../../tests/views";
import { leftTexts, sourcesText } from "./pull_sources";

it("names the nodes that give, with what came of each, and those that were left, with why", () => {
  const sources = [
    sourceView("studio", 2 ** 30),
    sourceView("mini-1"),
    sourceView("mini-2", 5, "it was silent for 10 s"),
  ];
  const pull = { sources, problem: null };
  expect(sourcesText(pull)).toBe("from 2 nodes: studio, 1.00 GiB; mini-1");
  expect(leftTexts(pull)).toEqual(["mini-2 was left: it was silent for 10 s"]);
  expect(sourcesText({ ...pull, sources: [] })).toBe("");
});
