/** What the page and the main process tell each other. */

/** What the preload script gives the page, as `window.fleet`. */
export interface FleetBridge {
  /**
   * Continues `prompt`; calls `onText` with each piece of the answer, and ends with
   * it. Throws with the error's words.
   */
  generate(prompt: string, onText: (piece: string) => void): Promise<void>;
  /** Stops the answer that runs. */
  stop(): Promise<void>;
}
