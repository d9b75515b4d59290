import { useId, useState } from "preact/hooks";

import type { LoadQuestion } from "../../../shared/messages";
import { kindName, RoleTag } from "../badges";
import { second } from "../clock";
import { Confirm, useConfirm } from "../confirm";
import { NodeLink } from "../event_list";
import { ago, bytes, count, dateTime, duration, modelName } from "../format";
import { ProblemBox } from "../problem";
import { href } from "../route";
import { nodesByOffer } from "../slow_nodes";
import { transfers } from "../../state/fleet";
import { CopyForm } from "./copy_form";
import { DiskList } from "./disk_list";
import { copyTargets } from "./disks";
import { FitPanel } from "./fit_panel";
import type { Holder, ModelRow } from "./model_rows";
import { asked, askedKey, beginUnload, dismiss, mayChange } from "./serving";
import { stored } from "./stored";

/** One model of the fleet. */
export function ModelCard({ row }: { row: ModelRow }) {
  const { modelId, offer, holders, disks, earlierNodeIds } = row;
  const title = useId();
  const [fits, setFits] = useState(false);
  const [copies, setCopies] = useState(false);
  const owner = modelId.slice(0, modelId.length - modelName(modelId).length).replace(/\/$/, "");
  const role = offer?.role ?? "verifier";
  const verifies = holders.some((each) => each.offer.role === "verifier" && !each.isDown);
  const servedBy = new Set(
    holders.filter((each) => each.offer.role === role).map(({ nodeId }) => nodeId),
  );
  const hasWeights = offer === undefined || offer.kind !== "ngram";
  const targets = copyTargets(row, nodesByOffer.value, transfers.value).filter(({ nodeId }) =>
    mayChange(nodeId),
  );
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
      {hasWeights && stored.value !== undefined && <DiskList {...{ modelId, disks }} />}
      {earlierNodeIds.length > 0 && (
        <p class="quiet small">
          Brought before to{" "}
          {earlierNodeIds.map((nodeId, index) => (
            <span key={nodeId}>
              {index > 0 && ", "}
              <NodeLink nodeId={nodeId} />
            </span>
          ))}
          , not served there now
        </p>
      )}
      {copies && <CopyForm {...{ model: modelId, targets }} />}
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
        {(targets.length > 0 || copies) && (
          <button
            type="button"
            class="button small"
            aria-expanded={copies}
            onClick={() => setCopies(!copies)}
          >
            {copies ? "Hide copying" : "Copy to a disk"}
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
  const confirming = useConfirm(() => void beginUnload(question));
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
          !confirming.isOpen && (
            <button
              type="button"
              class="text-button"
              ref={confirming.opener}
              onClick={confirming.ask}
            >
              Unload
              <span class="unseen">
                {" "}
                {modelId} as {offer.role}
              </span>
            </button>
          )
        )}
      </span>
      <Confirm
        confirming={confirming}
        label="Unload it?"
        words="Its answers get 5 s to end; chats that can go on elsewhere do so."
        yes="Unload"
        no="Keep"
      />
      {state?.state === "refused" && (
        <div class="holder-problem">
          <ProblemBox problem={state.problem} onClose={() => dismiss(key)} />
        </div>
      )}
    </li>
  );
}
