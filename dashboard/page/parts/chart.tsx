import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { paint, resolvedColour } from "./theme";

/** Steps between marks of bytes. */
const POWERS_OF_TWO = Array.from({ length: 50 }, (_, power) => 2 ** power);

export interface Line {
  label: string;
  /** A colour of the style sheet, as --accent. */
  colour: string;
  values: readonly (number | null)[];
  /** Without the tint below it. */
  bare?: boolean;
  dashed?: boolean;
}

interface ChartProps {
  /** Milliseconds since 1970, oldest first; every line has a value for each. */
  at: readonly number[];
  lines: readonly Line[];
  height: number;
  format: (value: number) => string;
  /** The chart in a sentence, for who does not see it. */
  summary: string;
  /** The least top of the scale. */
  least?: number;
  /** Marks at powers of two, as bytes have them. */
  binary?: boolean;
  /** The span that is drawn up to the latest, however little is told of it; as told without. */
  seconds?: number;
}

/** Lines over time. The canvas is a picture with `summary` as its text. */
export function Chart({
  at,
  lines,
  height,
  format,
  summary,
  least = 1,
  binary = false,
  seconds,
}: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const formatter = useRef(format);
  formatter.current = format;
  const painted = paint.value;
  const shape = lines.map((line) => `${line.label}${line.colour}`).join();
  const readout = useRef<HTMLDivElement>(null);

  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const ink = resolvedColour("--ink-3");
    const grid = resolvedColour("--line");
    const axis = {
      stroke: ink,
      font: '11px "Inter Variable", system-ui, sans-serif',
      grid: { stroke: grid, width: 1 },
      ticks: { show: false },
    };
    const show = (chart: uPlot): void => {
      const box = readout.current;
      const index = chart.cursor.idx;
      if (box === null) return;
      box.textContent =
        index === null || index === undefined
          ? ""
          : readingAt(chart, index, (value) => formatter.current(value));
    };
    const chart = new uPlot(
      {
        width: Math.max(120, element.clientWidth),
        height,
        // Half of a mark of time with its seconds, so that the last one is whole.
        padding: [8, 26, 0, 0],
        legend: { show: false },
        cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
        scales: {
          ...(seconds === undefined
            ? {}
            : { x: { range: (_chart, _low, high) => [(high ?? 0) - seconds + 1, high ?? 0] } }),
          y: { range: (_chart, _low, high) => [0, Math.max(least, (high ?? 0) * 1.08)] },
        },
        axes: [
          { ...axis, grid: { show: false }, size: 24, space: 70, values: timeMarks },
          {
            ...axis,
            size: axisWidth,
            gap: 8,
            space: 36,
            ...(binary ? { incrs: POWERS_OF_TWO } : {}),
            values: (_chart, marks) => marks.map((mark) => formatter.current(mark)),
          },
        ],
        series: [{}, ...lines.map(seriesOf)],
        hooks: { setCursor: [show] },
      },
      [[], ...lines.map(() => [])],
      element,
    );
    plot.current = chart;
    const resize = new ResizeObserver(() => {
      chart.setSize({ width: Math.max(120, element.clientWidth), height });
    });
    resize.observe(element);
    return () => {
      resize.disconnect();
      chart.destroy();
      plot.current = null;
    };
  }, [painted, shape, height, least, binary, seconds]);

  useEffect(() => {
    plot.current?.setData([
      at.map((time) => time / 1000),
      ...lines.map((line) => [...line.values]),
    ]);
  });

  return (
    <figure class="chart">
      <div ref={place} style={{ height: `${height}px` }} role="img" aria-label={summary} />
      <div class="chart-readout" ref={readout} aria-hidden="true" />
    </figure>
  );
}

function seriesOf(line: Line): uPlot.Series {
  const stroke = resolvedColour(line.colour);
  return {
    label: line.label,
    stroke,
    width: 1.5,
    points: { show: false },
    ...(line.dashed === true ? { dash: [4, 4] } : {}),
    ...(line.bare === true ? {} : { fill: tint(stroke) }),
  };
}

/** The colour at a tenth of its strength. */
function tint(colour: string): string {
  return colour.startsWith("rgb(")
    ? colour.replace("rgb(", "rgba(").replace(")", ", 0.11)")
    : "transparent";
}

/** As wide as the longest mark, in steps, so that the chart does not shift with each value. */
function axisWidth(_chart: uPlot, marks: string[] | null): number {
  const longest = Math.max(3, ...(marks ?? []).map((mark) => mark.length));
  return 14 + Math.ceil(longest / 2) * 2 * 6.2;
}

function timeMarks(_chart: uPlot, marks: number[]): string[] {
  return marks.map((mark) => {
    const date = new Date(mark * 1000);
    const two = (part: number): string => String(part).padStart(2, "0");
    const minute = `${two(date.getHours())}:${two(date.getMinutes())}`;
    return date.getSeconds() === 0 ? minute : `${minute}:${two(date.getSeconds())}`;
  });
}

function readingAt(chart: uPlot, index: number, format: (value: number) => string): string {
  const time = chart.data[0][index];
  if (time === undefined) return "";
  const clock = new Date(time * 1000).toLocaleTimeString("en-GB", { hour12: false });
  const values = chart.series.slice(1).map((series, at) => {
    const value = chart.data[at + 1]?.[index];
    const name = chart.series.length > 2 ? `${String(series.label)} ` : "";
    return value === null || value === undefined ? "" : `${name}${format(value)}`;
  });
  return [clock, ...values.filter((text) => text !== "")].join("  ·  ");
}
