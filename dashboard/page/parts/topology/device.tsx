/** A machine, filled from the bottom by the memory in use. */

import { useId } from "preact/hooks";

import { CANVAS, shapeOf } from "./shapes";

interface DeviceProps {
  shape: string;
  width: number;
  height: number;
  /** Share of the memory in use, 0 to 1. */
  share: number;
  /** Adds a state's look: good, busy, warn, bad, idle. */
  tone: string;
  /** Small ones lose their details. */
  plain?: boolean;
}

export function Device({ shape, width, height, share, tone, plain = false }: DeviceProps) {
  const clip = useId();
  const drawn = shapeOf(shape);
  const tall = drawn.bottom - drawn.top;
  const level = {
    transform: `translateY(${((1 - share) * tall).toFixed(1)}px)`,
  };
  return (
    <svg
      class={`device ${tone}`}
      width={width}
      height={height}
      viewBox={`0 0 ${CANVAS.width} ${CANVAS.height}`}
      aria-hidden="true"
    >
      <clipPath id={clip}>
        <path d={drawn.body} />
      </clipPath>
      <path class="device-back" d={drawn.body} />
      <g clip-path={`url(#${clip})`}>
        <g class="device-level" style={level}>
          <rect x="0" y={drawn.top} width="96" height={tall + 2} />
          <path d={`M0 ${drawn.top}H96`} />
        </g>
      </g>
      {!plain && <path class="device-details" d={drawn.details} />}
      <path class="device-solid" d={drawn.solid} />
      <path class="device-edge" d={drawn.body} />
    </svg>
  );
}
