import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { connect, retry, retryAt } from "../../page/state/connect";
import { connection } from "../../page/state/fleet";

/** Streams that were opened, the latest last; they do what the test says. */
const opened: Stream[] = [];

class Stream {
  onopen = (): void => undefined;
  onmessage = (): void => undefined;
  onerror = (): void => undefined;
  closed = false;

  constructor() {
    opened.push(this);
  }

  addEventListener(): void {
    // Signs of life are not told here.
  }

  close(): void {
    this.closed = true;
  }
}

beforeEach(() => {
  opened.length = 0;
  vi.useFakeTimers();
  vi.stubGlobal("EventSource", Stream);
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("a lost process is asked again, each time later; whoever does not wait asks at once", () => {
  const end = connect();
  const lose = (): number => {
    opened.at(-1)!.onerror();
    return retryAt.value - Date.now();
  };
  expect(lose()).toBe(250);
  expect(connection.value.state).toBe("lost");
  vi.advanceTimersByTime(250);
  expect(opened).toHaveLength(2);
  expect(retryAt.value).toBe(0);
  expect(lose()).toBe(500);
  vi.advanceTimersByTime(500);
  expect(lose()).toBe(1000);
  retry();
  expect(opened).toHaveLength(4);
  expect(retryAt.value).toBe(0);
  // The try that it waited for is not one more.
  vi.advanceTimersByTime(1000);
  expect(opened).toHaveLength(4);
  // Nor are two streams open at once.
  retry();
  expect(opened.map(({ closed }) => closed)).toEqual([true, true, true, true, false]);
  end();
  expect(opened.at(-1)!.closed).toBe(true);
});
