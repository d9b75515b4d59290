import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { inFrames } from "../../page/state/frames";

let frames: Map<number, () => void>;

beforeEach(() => {
  frames = new Map();
  let asked = 0;
  vi.useFakeTimers();
  vi.stubGlobal("requestAnimationFrame", (draw: () => void) => {
    asked += 1;
    frames.set(asked, draw);
    return asked;
  });
  vi.stubGlobal("cancelAnimationFrame", (handle: number) => frames.delete(handle));
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** What each hand-over got, once `put` was called with 0, 1, 2, ... */
function handed(count: number): { put: (item: number) => void; got: [number[], boolean][] } {
  const got: [number[], boolean][] = [];
  const put = inFrames<number>((items, settled) => got.push([[...items], settled]));
  for (let item = 0; item < count; item += 1) put(item);
  return { put, got };
}

function draw(): void {
  const due = [...frames.values()];
  frames.clear();
  for (const each of due) each();
}

test("few are handed over together, with the next frame and not before", () => {
  const { got } = handed(3);
  expect(got).toEqual([]);
  draw();
  expect(got).toEqual([[[0, 1, 2], true]]);
  draw();
  expect(got).toHaveLength(1);
});

test("a burst is spread over five frames, in its order, and settles with the last", () => {
  const { got } = handed(100);
  for (let frame = 0; frame < 5; frame += 1) draw();
  expect(got.map(([items]) => items.length)).toEqual([20, 20, 20, 20, 20]);
  expect(got.map(([, settled]) => settled)).toEqual([false, false, false, false, true]);
  expect(got.flatMap(([items]) => items)).toEqual(Array.from({ length: 100 }, (_, at) => at));
});

test("what comes meanwhile waits its turn, and raises the shares when it is more", () => {
  const { put, got } = handed(10);
  draw();
  for (let item = 10; item < 200; item += 1) put(item);
  for (let frame = 0; frame < 6; frame += 1) draw();
  expect(got.at(-1)?.[1]).toBe(true);
  expect(got.flatMap(([items]) => items)).toEqual(Array.from({ length: 200 }, (_, at) => at));
});

test("a page without frames gets everything at once after a while", () => {
  const { got } = handed(100);
  vi.advanceTimersByTime(499);
  expect(got).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(got.map(([items, settled]) => [items.length, settled])).toEqual([[100, true]]);
  draw();
  expect(got).toHaveLength(1);
});
