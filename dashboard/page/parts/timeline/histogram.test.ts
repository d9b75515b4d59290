import { expect, test } from "vitest";

import { blockView } from "../../../tests/views";
import { keptBins, timeBins } from "./histogram";

const kept = (committed: number) => ({ ...blockView(0), committed });
const took = (milliseconds: number) => ({
  ...blockView(0),
  waitSeconds: 0,
  verifySeconds: milliseconds / 1000,
});

test("there is a bar for each count of tokens up to the most, also for none of them", () => {
  const bins = keptBins([kept(1), kept(4), kept(4), kept(2)]);
  expect(bins).toEqual([
    { label: "1", count: 1 },
    { label: "2", count: 1 },
    { label: "3", count: 0 },
    { label: "4", count: 2 },
  ]);
  expect(keptBins([])).toEqual([]);
});

test("times are told in round steps, and one that took far longer does not squeeze the others", () => {
  const usual = Array.from({ length: 200 }, (_, index) => took(20 + (index % 10)));
  const bins = timeBins([...usual, took(4000)]);
  expect(bins.length).toBeGreaterThan(8);
  expect(bins.length).toBeLessThanOrEqual(12);
  expect(bins[0]).toEqual({ label: "20.0 ms", count: 20 });
  expect(bins.at(-1)!.count).toBeGreaterThan(0);
  expect(bins.filter(({ label }) => label.endsWith("+"))).toEqual([bins.at(-1)]);
  expect(bins.reduce((sum, { count }) => sum + count, 0)).toBe(201);
  expect(timeBins([])).toEqual([]);
  expect(timeBins([took(5), took(5)])).toHaveLength(1);
  expect(timeBins([took(0)])).toHaveLength(1);
});
