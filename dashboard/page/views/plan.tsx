import { signal } from "@preact/signals";
import { useEffect, useId } from "preact/hooks";

import type { PlacementView, PlanQuestion, PlanView, Problem } from "../../shared/messages";
import { Empty } from "../parts/empty";
import { bytes, count, duration, modelName, percent, tokenRate } from "../parts/format";
import { Icon } from "../parts/icon";
import { sliderSteps, stepOf, valueAt } from "../parts/log_scale";
import { contextLimit, proposerModels, verifierModels } from "../parts/model_choice";
import { PageHead } from "../parts/page_head";
import { Panel } from "../parts/panel";
import { ProblemBox } from "../parts/problem";
import { href } from "../parts/route";
import { Segmented } from "../parts/segmented";
import { TRANSPORT_NAME } from "../parts/states";
import { STRATEGIES } from "../parts/strategies";
import { plan, ProblemError } from "../state/ask";

/** The least context that is asked about, and the most where no model tells its own. */
const CONTEXT = { low: 64, high: 131_072 };
/** Milliseconds without a change before the fleet is asked. */
const DEBOUNCE_MS = 180;

/** Tokens that are asked about first, where the model was made for so many. */
const FIRST_CONTEXT = 4096;

/** As it was chosen: no model and 0 tokens until somebody chose. */
const question = signal<PlanQuestion>({
  verifierModel: "",
  contextTokens: 0,
  kvStrategy: "auto",
});
const answer = signal<{ plan?: PlanView; problem?: Problem; asking: boolean }>({ asking: false });

export function PlanPage() {
  const models = verifierModels.value;
  const asked = question.value;
  const model = models.includes(asked.verifierModel) ? asked.verifierModel : (models[0] ?? "");
  const key = JSON.stringify(completed(asked, model));

  useEffect(() => {
    if (model === "") return;
    const left = new AbortController();
    const timer = setTimeout(() => {
      void ask(completed(question.peek(), model), left.signal);
    }, DEBOUNCE_MS);
    return () => {
      clearTimeout(timer);
      left.abort();
    };
  }, [key]);

  if (models.length === 0) {
    return (
      <>
        <PageHead title="Plan" />
        <Panel title="Pairing">
          <Empty title="No node verifies" command="fleet join --serve verifier=tiny">
            A plan pairs a verifier with a proposer. Start a node with a verifier.
          </Empty>
        </Panel>
      </>
    );
  }
  const { plan: chosen, problem, asking } = answer.value;
  return (
    <>
      <PageHead title="Plan">
        <span class="lede">A dry run: it starts nothing</span>
      </PageHead>
      <div class="plan-layout">
        <Panel title="Question">
          <Question model={model} />
        </Panel>
        <div class={asking ? "stack asking" : "stack"} aria-busy={asking}>
          {problem !== undefined && <ProblemBox problem={problem} />}
          {chosen !== undefined && problem === undefined && <Answer plan={chosen} />}
          {chosen === undefined && problem === undefined && (
            <Panel title="Pairing">
              <p class="quiet plan-waiting">Planning …</p>
            </Panel>
          )}
        </div>
      </div>
    </>
  );
}

async function ask(asked: PlanQuestion, signalLeft: AbortSignal): Promise<void> {
  answer.value = { ...answer.peek(), asking: true };
  try {
    answer.value = { plan: await plan(asked, signalLeft), asking: false };
  } catch (error) {
    if (signalLeft.aborted) return;
    if (!(error instanceof ProblemError)) throw error;
    answer.value = { problem: error.problem, asking: false };
  }
}

/** The question with what nobody chose yet. */
function completed(asked: PlanQuestion, model: string): PlanQuestion {
  const first = Math.min(FIRST_CONTEXT, contextLimit(model) || FIRST_CONTEXT);
  return { ...asked, verifierModel: model, contextTokens: asked.contextTokens || first };
}

function Question({ model }: { model: string }) {
  const asked = completed(question.value, model);
  const [modelField, proposerField, contextField] = [useId(), useId(), useId()];
  const change = (part: Partial<PlanQuestion>): void => {
    question.value = { ...question.peek(), verifierModel: model, ...part };
  };
  const limit = contextLimit(model);
  const scale = { low: CONTEXT.low, high: Math.max(CONTEXT.high, limit) };
  const steps = sliderSteps(scale);
  const step = stepOf(scale, asked.contextTokens);
  return (
    <form class="form" onSubmit={(event) => event.preventDefault()}>
      <div class="field">
        <label for={modelField}>Verifier</label>
        <select
          id={modelField}
          class="select"
          value={model}
          onChange={(event) => change({ verifierModel: event.currentTarget.value })}
        >
          {verifierModels.value.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </div>
      <div class="field">
        <label for={proposerField}>Proposer</label>
        <select
          id={proposerField}
          class="select"
          value={asked.proposerModel ?? ""}
          onChange={(event) => {
            const { proposerModel: _, ...rest } = question.peek();
            const chosen = event.currentTarget.value;
            question.value = {
              ...rest,
              verifierModel: model,
              ...(chosen === "" ? {} : { proposerModel: chosen }),
            };
          }}
        >
          <option value="">Whichever is fastest</option>
          {proposerModels.value.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </div>
      <div class="field">
        <label for={contextField}>Context, in tokens</label>
        <div class="context-row">
          <input
            class="range"
            type="range"
            aria-label="Context"
            aria-valuetext={`${count(asked.contextTokens)} tokens`}
            min={0}
            max={steps}
            value={step}
            style={{ "--done": `${(step / steps) * 100}%` }}
            onInput={(event) =>
              change({ contextTokens: valueAt(scale, Number(event.currentTarget.value)) })
            }
          />
          <input
            id={contextField}
            class="input end"
            type="number"
            inputMode="numeric"
            min={1}
            value={asked.contextTokens}
            onChange={(event) => {
              const typed = Math.floor(Number(event.currentTarget.value));
              if (typed >= 1) change({ contextTokens: typed });
            }}
          />
        </div>
        <span class="hint">
          {limit > 0 ? `The model was made for ${count(limit)}.` : "The model tells no limit."}
        </span>
      </div>
      <div class="field">
        <span class="label">K/V</span>
        <Segmented
          legend="K/V strategy"
          value={asked.kvStrategy}
          options={STRATEGIES}
          onChange={(kvStrategy) => change({ kvStrategy })}
        />
      </div>
      <a class="button" href={href("chat", "", { model })}>
        Chat with it
        <Icon name="arrow" size={14} />
      </a>
    </form>
  );
}

function Answer({ plan: chosen }: { plan: PlanView }) {
  const { verifier, proposer } = chosen;
  const most = Math.max(
    chosen.predictedTokensPerSecond,
    chosen.predictedAloneTokensPerSecond,
    1e-9,
  );
  const gain = chosen.predictedTokensPerSecond / chosen.predictedAloneTokensPerSecond;
  return (
    <>
      <Panel
        title={proposer === null ? "It decodes alone" : "Chosen pair"}
        end={
          chosen.exact ? (
            <span class="tag good">exact</span>
          ) : (
            <span class="tag warn">not exact</span>
          )
        }
      >
        <div class="pair">
          {proposer !== null && (
            <>
              <Placement role="Proposer" placement={proposer} />
              <div class="pair-way">
                <span>
                  {chosen.roundTripSeconds > 0 ? duration(chosen.roundTripSeconds) : "same node"}
                </span>
                <i aria-hidden="true" />
                <span class="quiet">
                  {TRANSPORT_NAME[chosen.transport]} · blocks of {chosen.blockSize}
                </span>
              </div>
            </>
          )}
          <Placement role="Verifier" placement={verifier} />
        </div>
        <div class="predicted">
          <PredictedBar
            name={proposer === null ? "alone" : "together"}
            value={chosen.predictedTokensPerSecond}
            most={most}
            strong
          />
          {proposer !== null && (
            <PredictedBar name="alone" value={chosen.predictedAloneTokensPerSecond} most={most} />
          )}
          <p class="quiet small">
            {proposer !== null && Number.isFinite(gain) && (
              <>Predicted: {gain.toFixed(2)} times as fast as alone. </>
            )}
            {proposer !== null && (
              <>
                Acceptance {percent(chosen.acceptanceRate)}
                {chosen.acceptanceRateHigh > 0 && (
                  <>
                    {" "}
                    ({percent(chosen.acceptanceRateLow)} to {percent(chosen.acceptanceRateHigh)} in
                    four of five sessions: {tokenRate(chosen.predictedTokensPerSecondLow)} to{" "}
                    {tokenRate(chosen.predictedTokensPerSecondHigh)})
                  </>
                )}
                ,{" "}
                {chosen.acceptanceMeasured
                  ? "measured with this pair"
                  : "assumed until it is measured"}
                .{" "}
              </>
            )}
            K/V {bytes(chosen.kvBytes)}.
          </p>
        </div>
        <ul class="reasons">
          {chosen.reasons.map((reason) => (
            <li key={reason}>{reason}</li>
          ))}
        </ul>
      </Panel>
      {chosen.archives.length > 0 && <Archives plan={chosen} />}
      <Rejections plan={chosen} />
    </>
  );
}

function Placement({ role, placement }: { role: string; placement: PlacementView }) {
  return (
    <div class="placement">
      <span class="quiet small">{role}</span>
      <strong class="clip" title={placement.modelId}>
        {modelName(placement.modelId)}
      </strong>
      <a class="node-link" href={href("node", placement.nodeId)}>
        {placement.nodeName}
      </a>
    </div>
  );
}

interface PredictedBarProps {
  name: string;
  value: number;
  most: number;
  strong?: boolean;
}

function PredictedBar({ name, value, most, strong = false }: PredictedBarProps) {
  return (
    <div class={strong ? "predicted-bar strong" : "predicted-bar"}>
      <span>{name}</span>
      <div aria-hidden="true">
        <i style={{ transform: `scaleX(${value / most})` }} />
      </div>
      <b>
        {tokenRate(value)} <small>tok/s</small>
      </b>
    </div>
  );
}

function Archives({ plan: chosen }: { plan: PlanView }) {
  const end = Math.max(1, ...chosen.archives.map((archive) => archive.endPosition));
  return (
    <Panel title="Archives" note="who keeps which positions of the evicted context">
      <ul class="ranges">
        {chosen.archives.map((archive) => (
          <li key={`${archive.nodeId}/${archive.firstPosition}`}>
            <a class="node-link" href={href("node", archive.nodeId)}>
              {archive.nodeName}
            </a>
            <div class="range-bar" aria-hidden="true">
              <i
                style={{
                  left: `${(archive.firstPosition / end) * 100}%`,
                  width: `${((archive.endPosition - archive.firstPosition) / end) * 100}%`,
                }}
              />
            </div>
            <span class="quiet small">
              {count(archive.firstPosition)} to {count(archive.endPosition)}
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Rejections({ plan: { rejections } }: { plan: PlanView }) {
  return (
    <Panel
      title="Not chosen"
      note={rejections.length === 0 ? "" : `${rejections.length}, each with its reason`}
      flush
    >
      {rejections.length === 0 ? (
        <Empty title="Nothing else was possible" />
      ) : (
        <div class="scroll">
          <table class="table rejections">
            <thead>
              <tr>
                <th scope="col">Proposer</th>
                <th scope="col">Verifier</th>
                <th scope="col">Why not</th>
                <th scope="col" class="num">
                  tok/s
                </th>
              </tr>
            </thead>
            <tbody>
              {rejections.map((each, index) => (
                <tr key={index}>
                  <td>
                    {each.proposer === null ? (
                      <span class="quiet">alone</span>
                    ) : (
                      <Where placement={each.proposer} />
                    )}
                  </td>
                  <td>
                    <Where placement={each.verifier} />
                  </td>
                  <td class="why">
                    <span class="tag">{each.reason.replaceAll("_", " ").toLowerCase()}</span>
                    <span>{each.explanation}</span>
                  </td>
                  <td class="num">
                    {each.predictedTokensPerSecond > 0
                      ? tokenRate(each.predictedTokensPerSecond)
                      : "—"}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function Where({ placement }: { placement: PlacementView }) {
  return (
    <span class="where">
      <a class="node-link" href={href("node", placement.nodeId)}>
        {placement.nodeName}
      </a>
      <span class="quiet small">{modelName(placement.modelId)}</span>
    </span>
  );
}
