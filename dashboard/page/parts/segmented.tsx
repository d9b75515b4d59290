import { useId } from "preact/hooks";

interface SegmentedProps<Value extends string> {
  legend: string;
  options: readonly { value: Value; label: string }[];
  value: Value;
  onChange: (value: Value) => void;
  small?: boolean;
}

/** A choice of one among few; a group of radio buttons to the keyboard. */
export function Segmented<Value extends string>(props: SegmentedProps<Value>) {
  const name = useId();
  return (
    <div
      class={props.small === true ? "segmented small" : "segmented"}
      role="radiogroup"
      aria-label={props.legend}
    >
      {props.options.map(({ value, label }) => (
        <label key={value}>
          <input
            type="radio"
            name={name}
            value={value}
            checked={props.value === value}
            onChange={() => props.onChange(value)}
          />
          {label}
        </label>
      ))}
    </div>
  );
}
