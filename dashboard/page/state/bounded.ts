/** Arrays that only grow at their end, up to a limit; each change is a new array. */

/** `list` with `items` after it, the oldest dropped beyond `limit`. */
export function appended<Item>(
  list: readonly Item[],
  items: readonly Item[],
  limit: number,
): Item[] {
  const spare = limit - items.length;
  if (spare <= 0) return items.slice(items.length - limit);
  const kept = list.length > spare ? list.slice(list.length - spare) : list;
  return [...kept, ...items];
}
