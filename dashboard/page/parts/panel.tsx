import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface PanelProps {
  title: string;
  /** Beside the title, quieter. */
  note?: ComponentChildren;
  /** At the far end of the title's line. */
  end?: ComponentChildren;
  class?: string;
  /** Without room around its content: tables bring their own. */
  flush?: boolean;
  children: ComponentChildren;
}

/** A titled area of a view, and a landmark by that title. */
export function Panel({ title, note, end, flush = false, children, ...rest }: PanelProps) {
  const id = useId();
  return (
    <section class={`panel ${rest.class ?? ""}`} aria-labelledby={id}>
      <div class="panel-head">
        <h2 id={id}>{title}</h2>
        {note !== undefined && <span class="note">{note}</span>}
        {end !== undefined && <div class="end row">{end}</div>}
      </div>
      {flush ? children : <div class="panel-body">{children}</div>}
    </section>
  );
}
