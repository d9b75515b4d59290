import { signal } from "@preact/signals";

import { fleetNow } from "../state/fleet";

/** The fleet's clock, once a second, in milliseconds since 1970: what ages are counted by. */
export const second = signal(fleetNow());

/**
 * The same clock, a third and two thirds of a second later. What is drawn anew each
 * second is drawn in turns: all of it would not fit one frame.
 */
export const chartSecond = signal(fleetNow());
export const listSecond = signal(fleetNow());

/** Starts the clock; returns what stops it. */
export function startClock(): () => void {
  const turns = [second, chartSecond, listSecond];
  let turn = 0;
  const timer = setInterval(() => {
    turns[turn]!.value = fleetNow();
    turn = (turn + 1) % turns.length;
  }, 1000 / turns.length);
  return () => clearInterval(timer);
}
