import type { ComponentChildren } from "preact";

import { Command } from "./copy";

interface EmptyProps {
  title: string;
  /** What to type so that there is something. */
  command?: string;
  /** Several of them, in their order, each with what it is for. */
  commands?: readonly { text: string; what: string }[];
  children?: ComponentChildren;
}

/** Says that there is nothing, why, and what to do about it. */
export function Empty({ title, command, commands, children }: EmptyProps) {
  return (
    <div class="empty">
      <p>
        <strong>{title}</strong>
        {children}
      </p>
      {command !== undefined && <Command text={command} />}
      {commands !== undefined && (
        <ol class="commands">
          {commands.map(({ text, what }) => (
            <li key={text}>
              <span class="small">{what}</span>
              <Command text={text} />
            </li>
          ))}
        </ol>
      )}
    </div>
  );
}
