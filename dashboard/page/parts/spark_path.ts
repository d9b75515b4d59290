/** Most points of a sparkline: more are averaged, since it is some 120 pixels wide. */
const MOST_POINTS = 60;

/**
 * The line and the area below it in a box 100 wide. Fewer values than `span`
 * stretch over the whole width, so that a young fleet's line is not half empty.
 */
export function sparkPaths(
  values: readonly number[],
  span: number,
  top: number,
  height: number,
): { line: string; area: string } {
  const points = thinned(values.slice(-span));
  if (points.length === 0) return { line: `M0 ${height - 0.75}H100`, area: "" };
  const ceiling = top > 0 ? top : 1;
  const room = height - 2;
  const y = (value: number): string =>
    (height - 0.75 - Math.min(1, Math.max(0, value / ceiling)) * room).toFixed(1);
  if (points.length === 1) {
    const level = y(points[0]!);
    return { line: `M0 ${level}H100`, area: `M0 ${level}H100V${height}H0z` };
  }
  const step = 100 / (points.length - 1);
  const path = points.map((value, index) => `${(index * step).toFixed(1)} ${y(value)}`).join("L");
  return { line: `M${path}`, area: `M${path}V${height}H0z` };
}

/** Averages of equal runs, aligned to the end. */
function thinned(values: readonly number[]): number[] {
  const run = Math.ceil(values.length / MOST_POINTS);
  if (run <= 1) return [...values];
  const points: number[] = [];
  for (let end = values.length; end > 0; end -= run) {
    const part = values.slice(Math.max(0, end - run), end);
    points.push(part.reduce((sum, value) => sum + value, 0) / part.length);
  }
  return points.reverse();
}
