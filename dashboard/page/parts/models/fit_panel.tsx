import { useEffect, useState } from "preact/hooks";

import type { FitView, MachineFitView, Problem, Role } from "../../../shared/messages";
import { fit, ProblemError } from "../../state/ask";
import { NodeLink } from "../event_list";
import { bytes } from "../format";
import { Icon } from "../icon";
import { ProblemBox } from "../problem";
import { beginLoad, mayChange } from "./serving";

interface FitPanelProps {
  model: string;
  role: Role;
  /** Nodes that serve it in that role already. */
  servedBy: ReadonlySet<string>;
}

/** Asks on which machines a model would fit, and shows each with why not. */
export function FitPanel({ model, role, servedBy }: FitPanelProps) {
  const [state, setState] = useState<FitView | Problem | "asking">("asking");
  useEffect(() => {
    const stopper = new AbortController();
    setState("asking");
    fit(model, stopper.signal).then(setState, (error: unknown) => {
      if (stopper.signal.aborted) return;
      if (!(error instanceof ProblemError)) throw error;
      setState(error.problem);
    });
    return () => stopper.abort();
  }, [model]);
  if (state === "asking") {
    return (
      <p class="quiet small fit-asking" role="status">
        Its headers are read, and every machine is asked for its memory
      </p>
    );
  }
  if ("reason" in state) return <ProblemBox problem={state} />;
  return (
    <ul class="fits" aria-label={`Where ${model} would fit`}>
      {state.machines.map((machine) => (
        <MachineFit
          key={machine.nodeIds.join()}
          {...{ machine, model: state.model, role, servedBy }}
        />
      ))}
    </ul>
  );
}

function MachineFit({
  machine,
  model,
  role,
  servedBy,
}: FitPanelProps & { machine: MachineFitView }) {
  const able = machine.nodeIds.filter((nodeId) => mayChange(nodeId) && !servedBy.has(nodeId));
  const [first, ...more] = machine.sentences;
  return (
    <li class={machine.fits ? "fit yes" : "fit no"}>
      <Icon name={machine.fits ? "check" : "cross"} size={14} />
      <div>
        <p>
          <span class="unseen">{machine.fits ? "It fits on" : "It does not fit on"} </span>
          {machine.nodeIds.map((nodeId, index) => (
            <span key={nodeId}>
              {index > 0 && ", "}
              <NodeLink nodeId={nodeId} />
            </span>
          ))}
          {machine.freeBytes > 0 && (
            <span class="quiet small"> · {bytes(machine.freeBytes)} free</span>
          )}
        </p>
        <p class="quiet small">{first}</p>
        {more.length > 0 && (
          <details class="small">
            <summary>More</summary>
            {more.map((sentence) => (
              <p class="quiet" key={sentence}>
                {sentence}
              </p>
            ))}
          </details>
        )}
      </div>
      {machine.fits && able[0] !== undefined && (
        <button
          type="button"
          class="button small"
          onClick={() => void beginLoad({ nodeId: able[0] ?? "", model, role })}
        >
          Load here
        </button>
      )}
    </li>
  );
}
