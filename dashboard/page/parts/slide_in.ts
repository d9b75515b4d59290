import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

const MILLISECONDS = 160;
const REST_MILLISECONDS = 50;

/**
 * Lets rows that come in at the top of `list` push the others down over a
 * moment: at once they would be gone from under the eye that reads them. True
 * while they move. Nobody who asked their device for less motion sees any.
 */
export function useSlideIn(list: RefObject<HTMLElement | null>): boolean {
  const first = useRef<HTMLElement | null>(null);
  const [moving, setMoving] = useState(false);
  useLayoutEffect(() => {
    const element = list.current;
    const top = element?.firstElementChild as HTMLElement | null;
    const before = first.current;
    first.current = top;
    if (element === null || top === null || before === top || before?.isConnected !== true) return;
    if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const distance = before.offsetTop - top.offsetTop;
    if (distance <= 0) return;
    const slide = element.animate(
      [{ transform: `translateY(${-distance}px)` }, { transform: "none" }],
      { duration: MILLISECONDS, easing: "ease-out" },
    );
    // A frame at rest between two slides: the browser takes the second for a
    // jump otherwise, since it compares with where the first one started.
    slide.onfinish = slide.oncancel = () =>
      void setTimeout(() => setMoving(false), REST_MILLISECONDS);
    setMoving(true);
  });
  return moving;
}
