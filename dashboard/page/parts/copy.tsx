import { useEffect, useState } from "preact/hooks";

import { Icon } from "./icon";

/** Copies `text`, and says so for two seconds. */
export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [state, setState] = useState<"" | "copied" | "refused">("");
  useEffect(() => {
    if (state === "") return;
    const timer = setTimeout(() => setState(""), 2000);
    return () => clearTimeout(timer);
  }, [state]);
  const copy = (): void => {
    navigator.clipboard.writeText(text).then(
      () => setState("copied"),
      () => setState("refused"),
    );
  };
  const said = state === "refused" ? "The browser did not permit copying" : "Copied";
  return (
    <>
      <button
        type="button"
        class="icon-button copy"
        onClick={copy}
        aria-label={label}
        title={label}
      >
        <Icon
          name={state === "copied" ? "check" : state === "refused" ? "warning" : "copy"}
          size={15}
        />
      </button>
      <span class="unseen" role="status">
        {state === "" ? "" : said}
      </span>
    </>
  );
}

/** A command to type, with a button that copies it. */
export function Command({ text }: { text: string }) {
  return (
    <span class="command">
      {/* Where it is wider than its place it is scrolled, by keys too. */}
      <code tabIndex={0}>{text}</code>
      <CopyButton text={text} label={`Copy: ${text}`} />
    </span>
  );
}

/** Lines of code, with a button that copies them. */
export function Code({ text, label }: { text: string; label: string }) {
  return (
    <div class="code">
      <pre tabIndex={0} role="region" aria-label={label}>
        <code>{text}</code>
      </pre>
      <CopyButton text={text} label={`Copy ${label}`} />
    </div>
  );
}
