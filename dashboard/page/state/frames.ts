/**
 * Gathers what arrives and hands it over once a frame, so that a burst of
 * messages costs one rendering.
 */

/** Milliseconds after which what waits is handed over without a frame: a hidden page has none. */
const PATIENCE_MS = 500;

/** A function that takes items one by one; `apply` gets those of a frame together, in order. */
export function oncePerFrame<Item>(apply: (items: readonly Item[]) => void): (item: Item) => void {
  let waiting: Item[] = [];
  let frame = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const handOver = (): void => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    const items = waiting;
    waiting = [];
    apply(items);
  };
  return (item) => {
    waiting.push(item);
    if (waiting.length > 1) return;
    frame = requestAnimationFrame(handOver);
    timer = setTimeout(handOver, PATIENCE_MS);
  };
}
