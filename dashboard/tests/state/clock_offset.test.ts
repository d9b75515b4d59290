import { expect, test } from "vitest";

import { ClockOffset } from "../../server/state/clock_offset";

test("clocks within a second count as the same", () => {
  const clock = new ClockOffset();
  expect(clock.heard(10_000, 10_400)).toBe(0);
  expect(clock.heard(11_000, 10_800)).toBe(0);
  expect(clock.milliseconds).toBe(0);
});

test("a clock an hour behind is corrected, and jitter of the wire moves nothing", () => {
  const clock = new ClockOffset();
  const behind = 3_600_000;
  expect(clock.heard(1000, 1000 + behind + 400)).toBe(behind + 400);
  expect(clock.heard(2000, 2000 + behind + 20)).toBe(0);
  expect(clock.heard(3000, 3000 + behind + 700)).toBe(0);
  expect(Math.abs(clock.milliseconds - behind)).toBeLessThan(1000);
});

test("a clock that was set right is followed", () => {
  const clock = new ClockOffset();
  expect(clock.heard(1000, 61_000)).toBe(60_000);
  expect(clock.heard(62_000, 62_010)).toBe(-60_000);
  expect(clock.milliseconds).toBe(0);
});

test("a clock that was set back is followed once its late words are forgotten", () => {
  const clock = new ClockOffset();
  clock.heard(0, 0);
  for (let word = 1; word <= 40; word += 1) clock.heard(word * 1000 - 60_000, word * 1000);
  expect(clock.milliseconds).toBe(60_000);
});
