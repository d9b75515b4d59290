import { useEffect, useRef } from "preact/hooks";

import { curveLength, pointAt, type Curve } from "./curve";

/** Pixels a second. */
const SPEED = 90;
const STEPS = 20;
/** Pixels between dots. */
const SPACING = 110;

/**
 * Dots that travel a curve, moved by transforms alone, so that fifty of them
 * cost the page's thread nothing. Without motion there are none: the line's
 * arrow tells the direction.
 */
export function FlowDots({
  curve,
  backwards,
  kind,
}: {
  curve: Curve;
  backwards: boolean;
  kind: string;
}) {
  const place = useRef<HTMLSpanElement>(null);
  const shape = JSON.stringify(curve) + String(backwards);
  useEffect(() => {
    const element = place.current;
    if (element === null || window.matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const length = curveLength(curve);
    const duration = (length / SPEED) * 1000;
    const frames = Array.from({ length: STEPS + 1 }, (_, step) => {
      const { x, y } = pointAt(curve, backwards ? 1 - step / STEPS : step / STEPS);
      const fade = step === 0 || step === STEPS ? 0 : 1;
      return { transform: `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`, opacity: fade };
    });
    const dots = [...element.children] as HTMLElement[];
    const running = dots.map((dot, index) =>
      dot.animate(frames, {
        duration,
        iterations: Number.POSITIVE_INFINITY,
        delay: -(duration * index) / dots.length,
      }),
    );
    return () => {
      for (const animation of running) animation.cancel();
    };
  }, [shape]);
  const dotCount = Math.min(4, Math.max(1, Math.round(curveLength(curve) / SPACING)));
  return (
    <span class={`flow ${kind}`} ref={place} aria-hidden="true">
      {Array.from({ length: dotCount }, (_, index) => (
        <i key={index} />
      ))}
    </span>
  );
}
