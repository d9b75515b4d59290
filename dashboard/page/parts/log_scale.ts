/** A slider over powers of two, since contexts are thought of in doublings. */

/** Steps of the slider between a number and its double. */
const STEPS = 4;

export interface LogScale {
  low: number;
  high: number;
}

export function sliderSteps({ low, high }: LogScale): number {
  return Math.max(1, Math.round(Math.log2(high / low) * STEPS));
}

/** The value at a step, rounded to two digits or to a power of two where it is one. */
export function valueAt(scale: LogScale, step: number): number {
  const exact = Math.min(scale.high, scale.low * 2 ** (step / STEPS));
  if (step % STEPS === 0) return Math.round(exact);
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(exact)) - 1);
  return Math.round(exact / unit) * unit;
}

export function stepOf(scale: LogScale, value: number): number {
  const within = Math.min(scale.high, Math.max(scale.low, value));
  return Math.round(Math.log2(within / scale.low) * STEPS);
}
