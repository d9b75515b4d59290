import { memo } from "preact/compat";

import { sparkPaths } from "./spark_path";

interface SparklineProps {
  /** One a second, oldest first; the line ends at the right edge with the latest. */
  values: readonly number[];
  /** Seconds that the whole width stands for. */
  span: number;
  /** The top of the scale, shared by all sparklines that are compared. */
  top: number;
  height?: number;
  /** Grey: of what is dead. */
  still?: boolean;
}

/** A line without axes; its meaning and its latest value stand beside it. */
export const Sparkline = memo(function Sparkline(props: SparklineProps) {
  const { values, span, top, height = 28, still = false } = props;
  const { line, area } = sparkPaths(values, span, top, height);
  return (
    <svg
      class={still ? "spark still" : "spark"}
      height={height}
      viewBox={`0 0 100 ${height}`}
      preserveAspectRatio="none"
      aria-hidden="true"
    >
      <path class="area" d={area} />
      <path class="line" d={line} />
    </svg>
  );
});
