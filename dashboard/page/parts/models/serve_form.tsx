import { signal } from "@preact/signals";
import { useId, useState } from "preact/hooks";

import type { LoadQuestion, Role } from "../../../shared/messages";
import { nodesByOffer } from "../slow_nodes";
import { Command } from "../copy";
import { ProblemBox } from "../problem";
import { Segmented } from "../segmented";
import { isDown } from "../states";
import { FitPanel } from "./fit_panel";
import { asked, askedKey, beginLoad, dismiss, rights } from "./serving";

/** Kept while other views are open. */
const form = signal<{ model: string; role: Role; nodeId: string }>({
  model: "",
  role: "verifier",
  nodeId: "",
});

const NOBODY: ReadonlySet<string> = new Set();

/** Has a node serve one more model, where that may be done from here. */
export function ServeForm() {
  const { model, role, nodeId } = form.value;
  const [modelField, nodeField] = [useId(), useId()];
  const [fitOf, setFitOf] = useState("");
  const known = rights.value;
  const able = nodesByOffer.value.filter((node) => !isDown(node) && known?.[node.nodeId] === null);
  const change = (part: Partial<typeof form.value>): void => {
    form.value = { ...form.value, ...part };
  };
  if (known !== undefined && able.length === 0) return <NotAllowed />;
  const chosen =
    able.find((node) => node.nodeId === nodeId) ?? able.find(({ isSelf }) => isSelf) ?? able[0];
  const name = model.trim();
  const question: LoadQuestion = { nodeId: chosen?.nodeId ?? "", model: name, role };
  const key = askedKey("load", question);
  const state = asked.value.get(key);
  return (
    <form
      class="serve-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (name !== "" && chosen !== undefined) void beginLoad(question);
      }}
    >
      <div class="field serve-model">
        <label for={modelField}>Model</label>
        <input
          id={modelField}
          class="input"
          type="text"
          spellcheck={false}
          autocomplete="off"
          maxLength={1024}
          placeholder="smollm2, or organisation/name of the hub"
          value={model}
          onInput={(event) => change({ model: event.currentTarget.value })}
        />
      </div>
      <div class="field">
        <span class="label">As</span>
        <Segmented
          legend="Role"
          value={role}
          options={[
            { value: "verifier", label: "Verifier" },
            { value: "proposer", label: "Proposer" },
          ]}
          onChange={(chosenRole) => change({ role: chosenRole })}
        />
      </div>
      <div class="field">
        <label for={nodeField}>On</label>
        <select
          id={nodeField}
          class="select"
          value={chosen?.nodeId ?? ""}
          onChange={(event) => change({ nodeId: event.currentTarget.value })}
        >
          {able.map((node) => (
            <option key={node.nodeId} value={node.nodeId}>
              {node.name}
            </option>
          ))}
        </select>
      </div>
      <div class="serve-actions">
        <button
          type="button"
          class="button"
          disabled={name === ""}
          onClick={() => setFitOf(fitOf === name ? "" : name)}
          aria-expanded={fitOf !== "" && fitOf === name}
        >
          Where does it fit?
        </button>
        <button
          type="submit"
          class="button primary"
          disabled={name === "" || chosen === undefined || state?.state === "asking"}
        >
          Load
        </button>
      </div>
      <div class="serve-said" role="status">
        {state?.state === "asking" && (
          <p class="quiet small">{chosen?.name} is asked to serve it</p>
        )}
        {state?.state === "begun" && (
          <p class="quiet small">
            {chosen?.name} has begun. How it stands is below; it goes on without this page.
          </p>
        )}
        {state?.state === "refused" && (
          <ProblemBox problem={state.problem} onClose={() => dismiss(key)} />
        )}
      </div>
      {fitOf !== "" && fitOf === name && (
        <div class="serve-fit">
          <FitPanel model={fitOf} role={role} servedBy={NOBODY} />
        </div>
      )}
    </form>
  );
}

/** Why no model can be loaded from here, in the words of the node that is nearest. */
function NotAllowed() {
  const known = rights.value ?? {};
  const refusal = Object.values(known).find((each) => each !== null);
  return (
    <div class="stack serve-refused">
      {refusal === undefined || refusal === null ? (
        <p class="quiet">No node says whether its models may be changed from here.</p>
      ) : (
        <p class="quiet">
          Models are not loaded from here: {refusal.message} <code>{refusal.reason}</code>
        </p>
      )}
      <div>
        <Command text="fleet load smollm2" />
      </div>
    </div>
  );
}
