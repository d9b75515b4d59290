import { useId, useState } from "preact/hooks";

import type { LoadQuestion } from "../../../shared/messages";
import { kindName, RoleTag } from "../badges";
import { second } from "../clock";
import { NodeLink } from "../event_list";
import { ago, bytes, count, dateTime, duration, modelName } from "../format";
import { ProblemBox } from "../problem";
import { href } from "../route";
import { FitPanel } from "./fit_panel";
import type { Holder, ModelRow } from "./model_rows";
import { asked, askedKey, beginUnload, dismiss, mayChange } from "./serving";

/** One model of the fleet. */
export function ModelCard({ row }: { row: ModelRow }) {
  const { modelId, offer, holders, fileNodeIds } = row;
  const title = useId();
  const [fits, setFits] = useState(false);
  const owner = modelId.slice(0, modelId.length - modelName(modelId).length).replace(/\/$/, "");
  const role = offer?.role ?? "verifier";
  const verifies = holders.some((each) => each.offer.role === "verifier" && !each.isDown);
  const servedBy = new Set(
    holders.filter((each) => each.offer.role === role).map(({ nodeId }) => nodeId),
  );
  const hasWeights = offer === undefined || offer.kind !== "ngram";
  return (
    <article class="panel model-card" aria-labelledby={title}>
      <header>
        <h2 id={title} class="clip" title={modelId}>
          {modelName(modelId)}
        </h2>
        <span class="quiet small clip">{owner}</span>
        {offer !== undefined && <span class="quiet small nowrap">{kindName(offer)}</span>}
      </header>
      <Facts row={row} />
      {holders.length > 0 ? (
        <ul class="holders">
          {holders.map((holder) => (
            <HolderRow key={`${holder.nodeId} ${holder.offer.role}`} {...{ holder, modelId }} />
          ))}
        </ul>
      ) : (
        <p class="quiet small holders-none">No node serves it now.</p>
      )}
      {fileNodeIds.length > 0 && (
        <p class="quiet small">
          On disk at{" "}
          {fileNodeIds.map((nodeId, index) => (
            <span key={nodeId}>
              {index > 0 && ", "}
              <NodeLink nodeId={nodeId} />
            </span>
          ))}
          , not served there
        </p>
      )}
      {fits && <FitPanel {...{ model: modelId, role, servedBy }} />}
      <footer class="row">
        {hasWeights && (
          <button
            type="button"
            class="button small"
            aria-expanded={fits}
            onClick={() => setFits(!fits)}
          >
            {fits ? "Hide where it fits" : "Where does it fit?"}
          </button>
        )}
        {verifies && (
          <a class="button small" href={href("chat", "", { model: modelId })}>
            Chat
          </a>
        )}
      </footer>
    </article>
  );
}

/** What it is, in one line of facts that are known. */
function Facts({ row: { offer, bytes: size } }: { row: ModelRow }) {
  const numbers = [offer?.dtype ?? "", offer?.quantization ?? ""].filter((each) => each !== "");
  const facts: { name: string; value: string }[] = [
    { name: "Weights", value: size > 0 ? bytes(size) : offer?.kind === "ngram" ? "none" : "" },
    { name: "Numbers", value: numbers.join(", ") },
    {
      name: "Context",
      value: offer !== undefined && offer.contextLength > 0 ? count(offer.contextLength) : "",
    },
  ];
  const known = facts.filter(({ value }) => value !== "");
  if (known.length === 0) return null;
  return (
    <dl class="model-facts">
      {known.map(({ name, value }) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function HolderRow({ holder, modelId }: { holder: Holder; modelId: string }) {
  const { nodeId, offer, since } = holder;
  const question: LoadQuestion = { nodeId, model: modelId, role: offer.role };
  const key = askedKey("unload", question);
  const state = asked.value.get(key);
  const [confirming, setConfirming] = useState(false);
  return (
    <li class={holder.isDown ? "holder dim" : "holder"}>
      <span class="holder-name">
        <span class="clip">
          <NodeLink nodeId={nodeId} />
        </span>
        <RoleTag role={offer.role} />
      </span>
      <span class="quiet small holder-since" title={since > 0 ? dateTime(since) : ""}>
        {holder.isDown
          ? "down"
          : [
              ...(since > 0 ? [`since ${ago(since, second.value).replace(" ago", "")}`] : []),
              ...(offer.stepSeconds > 0 ? [`${duration(offer.stepSeconds)} a step`] : []),
            ].join(" · ")}
      </span>
      <span class="holder-act">
        {state?.state === "asking" ? (
          <span class="quiet small" role="status">
            unloading
          </span>
        ) : (
          !holder.isDown &&
          mayChange(nodeId) &&
          !confirming && (
            <button type="button" class="text-button" onClick={() => setConfirming(true)}>
              Unload
              <span class="unseen">
                {" "}
                {modelId} as {offer.role}
              </span>
            </button>
          )
        )}
      </span>
      {confirming && (
        <div class="holder-confirm" role="group" aria-label="Unload it?">
          <span class="small">
            Its answers get 5 s to end; chats that can go on elsewhere do so.
          </span>
          <span class="row">
            <button
              type="button"
              class="button small danger"
              onClick={() => {
                setConfirming(false);
                void beginUnload(question);
              }}
            >
              Unload
            </button>
            <button type="button" class="button small" onClick={() => setConfirming(false)}>
              Keep
            </button>
          </span>
        </div>
      )}
      {state?.state === "refused" && (
        <div class="holder-problem">
          <ProblemBox problem={state.problem} onClose={() => dismiss(key)} />
        </div>
      )}
    </li>
  );
}
