import type { AskedStrategy } from "../../shared/messages";

/** How keys and values may be asked to be kept. */
export const STRATEGIES: readonly { value: AskedStrategy; label: string }[] = [
  { value: "auto", label: "Auto" },
  { value: "sink_window", label: "Sink + window" },
  { value: "restored", label: "Restored" },
  { value: "full", label: "Full" },
];
