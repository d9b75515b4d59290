/**
 * Gathers what arrives and hands it over frame by frame, so that a burst of
 * messages costs no frame more than its share.
 */

/** Frames that a burst is spread over: the process sends at most ten of them a second. */
const FRAMES = 5;
/** So few go together. */
const FEW = 8;
/** Milliseconds after which what waits is handed over without a frame: a hidden page has none. */
const NO_FRAME_MS = 500;

/**
 * A function that takes items one by one; `apply` gets them in their order, a share a
 * frame, and `settled` with the last of them.
 */
export function inFrames<Item>(
  apply: (items: readonly Item[], settled: boolean) => void,
): (item: Item) => void {
  let waiting: Item[] = [];
  let share = 0;
  let frame = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const handOver = (count: number): void => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    const items = waiting.slice(0, count);
    waiting = waiting.slice(count);
    const settled = waiting.length === 0;
    if (settled) share = 0;
    else schedule();
    apply(items, settled);
  };
  const schedule = (): void => {
    frame = requestAnimationFrame(() => {
      share = Math.max(share, FEW, Math.ceil(waiting.length / FRAMES));
      handOver(share);
    });
    timer = setTimeout(() => handOver(waiting.length), NO_FRAME_MS);
  };
  return (item) => {
    waiting.push(item);
    if (waiting.length === 1) schedule();
  };
}
