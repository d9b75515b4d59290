import { NONE } from "./format";

/** A number as `format` gives it, with its unit; one that is not there looks the same everywhere. */
export function Value({ text, unit = "" }: { text: string; unit?: string }) {
  if (text === NONE) return <small class="none-yet">none yet</small>;
  return (
    <>
      {text}
      {unit !== "" && <small> {unit}</small>}
    </>
  );
}
