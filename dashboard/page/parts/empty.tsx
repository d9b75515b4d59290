import type { ComponentChildren } from "preact";

import { Command } from "./copy";

interface EmptyProps {
  title: string;
  /** What to type so that there is something. */
  command?: string;
  children?: ComponentChildren;
}

/** Says that there is nothing, why, and what to do about it. */
export function Empty({ title, command, children }: EmptyProps) {
  return (
    <div class="empty">
      <p>
        <strong>{title}</strong>
        {children}
      </p>
      {command !== undefined && <Command text={command} />}
    </div>
  );
}
