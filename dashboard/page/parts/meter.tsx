/** A share of a whole. The figures stand beside it; the bar itself is told by `label`. */
export function Meter({
  share,
  label,
  tone = "",
}: {
  share: number;
  label: string;
  tone?: string;
}) {
  const part = Math.min(1, Math.max(0, share));
  return (
    <span
      class={`meter ${tone}`}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(part * 100)}
    >
      <i style={{ transform: `scaleX(${part})` }} />
    </span>
  );
}

/** Memory near its end is told before it is there. */
export function memoryTone(share: number): string {
  if (share >= 0.95) return "bad";
  return share >= 0.88 ? "warn" : "";
}
