import type { Problem } from "../../shared/messages";
import { Icon } from "./icon";

/** What to do about it; what stands in backquotes is a command, and looks like one. */
export function Mend({ text }: { text: string }) {
  if (text === "") return null;
  return (
    <p class="mend small">
      <Icon name="mend" size={13} />
      <span>
        <span class="unseen">Mend: </span>
        {text
          .split("`")
          .map((part, index) => (index % 2 === 1 ? <code key={part}>{part}</code> : part))}
      </span>
    </p>
  );
}

/** An error with its cause, its name and its mend. */
export function ProblemBox({ problem, onClose }: { problem: Problem; onClose?: () => void }) {
  return (
    <div class="problem" role="alert">
      {onClose !== undefined && (
        <button
          type="button"
          class="icon-button problem-close"
          aria-label="Close"
          onClick={onClose}
        >
          <Icon name="cross" size={13} />
        </button>
      )}
      <Icon name="error" size={18} />
      <p>{problem.message}</p>
      <Mend text={problem.mend} />
      {problem.reason !== "" && <code class="reason">{problem.reason}</code>}
    </div>
  );
}
