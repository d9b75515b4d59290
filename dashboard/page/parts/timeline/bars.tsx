import { count } from "../format";
import type { Bin } from "./histogram";

interface BarsProps {
  bins: readonly Bin[];
  /** What is counted, such as "forwards that kept so many tokens". */
  what: string;
}

/** Counts as bars beside each other. */
export function Bars({ bins, what }: BarsProps) {
  const most = Math.max(1, ...bins.map((bin) => bin.count));
  const words = bins
    .filter((bin) => bin.count > 0)
    .map((bin) => `${bin.label}: ${count(bin.count)}`)
    .join(", ");
  return (
    <div class="bars" role="img" aria-label={`${what}: ${words}`}>
      {bins.map((bin) => (
        <div key={bin.label} class="bars-bin" title={`${bin.label}: ${count(bin.count)}`}>
          <span class="bars-count">{bin.count > 0 ? count(bin.count) : ""}</span>
          <i style={{ height: `${(bin.count / most) * 100}%` }} />
          <span class="bars-label">{bin.label}</span>
        </div>
      ))}
    </div>
  );
}
