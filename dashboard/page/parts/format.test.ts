import { describe, expect, it } from "vitest";

import * as format from "./format";

describe("bytes", () => {
  it.each([
    [0, "0 B"],
    [999, "999 B"],
    [1000, "0.98 KiB"],
    [1536, "1.50 KiB"],
    [34_359_738_368, "32.0 GiB"],
    [137_438_953_472, "128 GiB"],
    [1_099_511_627_776 * 2.5, "2,560 GiB"],
    [1_099_511_627_776 * 25, "25.0 TiB"],
    [Number.NaN, "—"],
    [-1, "—"],
  ])("%d is %s", (value, text) => expect(format.bytes(value)).toBe(text));

  it("tells a part in the unit of its whole", () => {
    expect(format.bytesOf(512 * 1024 ** 2, 32 * 1024 ** 3)).toEqual({
      part: "0.50",
      whole: "32.0",
      unit: "GiB",
    });
    expect(format.bytesOf(0, 0)).toEqual({ part: "0", whole: "0", unit: "B" });
  });
});

describe("durations", () => {
  it.each([
    [0, "0 s"],
    [0.000_012, "12.0 µs"],
    [0.000_31, "0.31 ms"],
    [0.0124, "12.4 ms"],
    [0.999, "999 ms"],
    [0.9996, "1.00 s"],
    [1.4, "1.40 s"],
    [59.96, "1 m 00 s"],
    [192, "3 m 12 s"],
    [3599.6, "1 h 00 m"],
    [7500, "2 h 05 m"],
    [3 * 86400 + 7200, "3 d 2 h"],
    [Number.POSITIVE_INFINITY, "—"],
    [-2, "—"],
  ])("%d seconds are %s", (value, text) => expect(format.duration(value)).toBe(text));

  it.each([
    [0, "now"],
    [59_400, "59 s ago"],
    [60_000, "1 m ago"],
    [7_200_000, "2 h ago"],
    [-5000, "now"],
  ])("%d ms before are %s", (before, text) => expect(format.ago(1e9 - before, 1e9)).toBe(text));
});

describe("rates and counts", () => {
  it.each([
    [0, "0"],
    [7.26, "7.3"],
    [99.94, "99.9"],
    [99.96, "100"],
    [1240.4, "1,240"],
  ])("%d tokens a second are %s", (value, text) => expect(format.tokenRate(value)).toBe(text));

  it("is never longer than four characters in small places", () => {
    for (let value = 0.01; value < 90_000; value *= 1.07) {
      expect(format.tokenRateShort(value).length).toBeLessThanOrEqual(4);
    }
  });

  it.each([
    [12_345, "12,345"],
    [123_456, "123k"],
    [1_234_567, "1.23M"],
  ])("%d is %s", (value, text) => expect(format.count(value)).toBe(text));

  it("names models and digests shortly", () => {
    expect(format.modelName("Qwen/Qwen3-4B")).toBe("Qwen3-4B");
    expect(format.modelName("tiny")).toBe("tiny");
    expect(format.shortDigest("sha256:0123456789abcdef")).toBe("0123456789");
    expect(format.shortDigest("")).toBe("—");
    expect(format.plural(1, "node")).toBe("1 node");
    expect(format.plural(0, "node")).toBe("0 nodes");
  });
});

it("clips long names, and knows another day", () => {
  expect(format.clipped("studio-01")).toBe("studio-01");
  expect(format.clipped("x".repeat(20))).toHaveLength(20);
  expect(format.clipped("x".repeat(21))).toBe(`${"x".repeat(19)}…`);
  const noon = new Date(2026, 10, 22, 12).getTime();
  expect(format.isToday(noon - 3600_000, noon)).toBe(true);
  expect(format.isToday(noon - 13 * 3600_000, noon)).toBe(false);
  expect(format.day(noon)).toBe("22 Nov");
});
