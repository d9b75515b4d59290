import { useRef, useState } from "preact/hooks";

/** Rows of a live list, and the handlers of the element about them. */
export interface PausedList<Row> {
  /** What to show: as it was when holding began. */
  rows: readonly Row[];
  /** How many came while somebody reads. */
  newCount: number;
  /** Shows what came; reading goes on from there. */
  release: () => void;
  reading: {
    onPointerEnter: () => void;
    onPointerLeave: () => void;
    onFocusIn: () => void;
    onFocusOut: () => void;
  };
}

/**
 * Keeps a list that is ordered by time, latest last, as it is while the pointer
 * or the focus is in it, so that what is read or about to be pressed stays
 * where it is; and while its rows still move. Another selection of rows is
 * another list: give it another key.
 */
export function usePausedList<Row extends { key: string }>(
  latest: readonly Row[],
  moving: boolean,
): PausedList<Row> {
  const [pointed, setPointed] = useState(false);
  const [focused, setFocused] = useState(false);
  const [asked, setAsked] = useState(false);
  const shown = useRef(latest);
  const read = pointed || focused;
  if (asked || !(read || moving)) shown.current = latest;
  if (asked) setAsked(false);
  const lastKey = shown.current.at(-1)?.key;
  const place = latest.findLastIndex((row) => row.key === lastKey);
  return {
    rows: shown.current,
    newCount: read ? latest.length - 1 - place : 0,
    release: () => {
      setAsked(true);
      // What was pressed goes away, and with it the focus, unsaid.
      setFocused(false);
    },
    reading: {
      onPointerEnter: () => setPointed(true),
      onPointerLeave: () => setPointed(false),
      onFocusIn: () => setFocused(true),
      onFocusOut: () => setFocused(false),
    },
  };
}
