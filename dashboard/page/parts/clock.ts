import { signal } from "@preact/signals";

import { fleetNow } from "../state/fleet";

/** The fleet's clock, once a second, in milliseconds since 1970: what ages are counted by. */
export const second = signal(fleetNow());

/** Starts the clock; returns what stops it. */
export function startClock(): () => void {
  const timer = setInterval(() => {
    second.value = fleetNow();
  }, 1000);
  return () => clearInterval(timer);
}
