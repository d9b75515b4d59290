import { expect, test } from "vitest";

import { sessionView } from "../../tests/views";
import { alone, otherReasons } from "./alone";

const planReasons = ["tiny alone: 40 tokens a second.", "No proposer is faster.", "Keys: 1 MiB."];

test("a session alone says why first, and its numbers after", () => {
  const view = { ...sessionView("n", "s"), planReasons };
  expect(alone(view)).toEqual({ why: "No proposer is faster.", dropped: false });
  expect(otherReasons(view)).toEqual([planReasons[0], planReasons[2]]);
  expect(alone(sessionView("n", "s"))).toEqual({ why: "", dropped: false });
});

test("a lost proposer is why; who has one is not alone", () => {
  const pair = { ...sessionView("n", "s"), proposerNodeId: "p", planReasons };
  expect(alone(pair)).toBeNull();
  expect(otherReasons(pair)).toEqual(planReasons);
  const dropped = { ...pair, dropReason: "TOO_SLOW" };
  expect(alone(dropped)).toEqual({ why: "too slow", dropped: true });
  expect(otherReasons(dropped)).toEqual(planReasons);
});
