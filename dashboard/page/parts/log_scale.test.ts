import { describe, expect, it } from "vitest";

import { sliderSteps, stepOf, valueAt } from "./log_scale";

describe("the slider of contexts", () => {
  const scale = { low: 64, high: 131_072 };

  it("goes from end to end, always upwards", () => {
    expect(valueAt(scale, 0)).toBe(64);
    expect(valueAt(scale, sliderSteps(scale))).toBe(131_072);
    for (let step = 1; step <= sliderSteps(scale); step += 1) {
      expect(valueAt(scale, step)).toBeGreaterThan(valueAt(scale, step - 1));
    }
  });

  it("finds the step of each of its values", () => {
    for (let step = 0; step <= sliderSteps(scale); step += 1) {
      expect(stepOf(scale, valueAt(scale, step))).toBe(step);
    }
  });

  it("keeps to its ends whatever is typed", () => {
    expect(stepOf(scale, 1)).toBe(0);
    expect(stepOf(scale, 1e9)).toBe(sliderSteps(scale));
  });
});
