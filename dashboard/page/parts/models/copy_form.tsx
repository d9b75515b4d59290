import { useId, useState } from "preact/hooks";

import type { DiskQuestion, NodeView } from "../../../shared/messages";
import { node, transfers } from "../../state/fleet";
import { ProblemBox } from "../problem";
import { latestDownload } from "./disks";
import { asked, askedKey, beginPull, dismiss } from "./serving";

interface CopyFormProps {
  model: string;
  /** Nodes that lack it and may be told to have it. */
  targets: readonly NodeView[];
}

/** Has a node copy a model from all nodes that have it. */
export function CopyForm({ model, targets }: CopyFormProps) {
  const field = useId();
  const [nodeId, choose] = useState("");
  const [latest, setLatest] = useState<DiskQuestion>();
  const chosen = targets.find((each) => each.nodeId === nodeId) ?? targets[0];
  return (
    <form
      class="copy-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (chosen === undefined) return;
        const question = { nodeId: chosen.nodeId, model };
        setLatest(question);
        void beginPull(question);
      }}
    >
      {chosen !== undefined && (
        <>
          <div class="field">
            <label for={field}>Copy to</label>
            <select
              id={field}
              class="select"
              value={chosen.nodeId}
              onChange={(event) => choose(event.currentTarget.value)}
            >
              {targets.map((each) => (
                <option key={each.nodeId} value={each.nodeId}>
                  {each.name}
                </option>
              ))}
            </select>
          </div>
          <button type="submit" class="button primary">
            Copy
          </button>
        </>
      )}
      <div class="copy-said" role="status">
        {latest !== undefined && <Said question={latest} />}
      </div>
    </form>
  );
}

/** What became of the latest request. */
function Said({ question }: { question: DiskQuestion }) {
  const key = askedKey("pull", question);
  const state = asked.value.get(key);
  const name = node(question.nodeId).value?.name ?? "The node";
  switch (state?.state) {
    case "asking":
      return <p class="quiet small">{name} is asked to copy it</p>;
    case "begun": {
      const download = latestDownload(transfers.value, question.model, [question.nodeId]);
      if (download === "done" || download === "failed") return null;
      return (
        <p class="quiet small">
          {name} has begun. How it stands is above; it goes on without this page.
        </p>
      );
    }
    case "there":
      return <p class="quiet small">{name} has its files already.</p>;
    case "refused":
      return <ProblemBox problem={state.problem} onClose={() => dismiss(key)} />;
    case undefined:
      return null;
  }
}
