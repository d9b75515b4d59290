import { signal } from "@preact/signals";
import { memo } from "preact/compat";
import { useEffect, useId, useRef } from "preact/hooks";

import type { PlaygroundRequest } from "../../shared/messages";
import {
  answer,
  begin,
  closeOpened,
  speed,
  stop,
  type AnswerState,
  type Run,
} from "../parts/answer";
import { Empty } from "../parts/empty";
import { NodeLink } from "../parts/event_list";
import { count, duration, percent, plural, tokenRate } from "../parts/format";
import { nodesByOffer } from "../parts/slow_nodes";
import { Icon } from "../parts/icon";
import { verifierModels } from "../parts/model_choice";
import { PageHead } from "../parts/page_head";
import { Panel } from "../parts/panel";
import { ProblemBox } from "../parts/problem";
import { href, route } from "../parts/route";
import { Segmented } from "../parts/segmented";
import { Snippets } from "../parts/snippets";
import { isDown } from "../parts/states";
import { Timeline } from "../parts/timeline/timeline";
import { STRATEGIES } from "./plan";

interface Form {
  model: string;
  mode: "chat" | "text";
  prompt: string;
  maxTokens: number;
  temperature: number;
  /** As typed: empty leaves it to the node. */
  seed: string;
  speculation: "auto" | "off";
  kvStrategy: PlaygroundRequest["kvStrategy"];
}

const form = signal<Form>({
  model: "",
  mode: "chat",
  prompt: "",
  maxTokens: 256,
  temperature: 0,
  seed: "",
  speculation: "auto",
  kvStrategy: "auto",
});
const showDrafted = signal(true);

const BLOCK_ROWS = 16;

export function PlaygroundPage() {
  useEffect(() => {
    window.addEventListener("pagehide", closeOpened);
    return () => window.removeEventListener("pagehide", closeOpened);
  }, []);
  const models = verifierModels.value;
  const asked = route.value.query.get("model") ?? "";
  const wanted = form.value.model !== "" ? form.value.model : asked;
  const model = models.includes(wanted) ? wanted : (models[0] ?? "");
  if (models.length === 0) {
    return (
      <>
        <PageHead title="Playground" />
        <Panel title="Answer">
          <Empty title="No node verifies" command="fleet join --serve verifier=tiny">
            The playground needs a verifier. The shipped model is small enough for any machine.
          </Empty>
        </Panel>
      </>
    );
  }
  return (
    <>
      <PageHead title="Playground" />
      <div class="playground">
        <div class="stack">
          <Prompt model={model} />
          <AnswerPanel />
          <Blocks />
        </div>
        <div class="stack">
          <Panel title="Settings">
            <Settings model={model} />
          </Panel>
          <Panel title="From an application">
            <ModelSnippets model={model} />
          </Panel>
        </div>
      </div>
    </>
  );
}

function change(part: Partial<Form>): void {
  form.value = { ...form.peek(), ...part };
}

function run(model: string): void {
  const { seed, ...rest } = form.peek();
  if (rest.prompt.trim() === "") return;
  const number = Number.parseInt(seed, 10);
  void begin({
    sessionKey: "",
    ...rest,
    model,
    ...(Number.isInteger(number) && number >= 0 ? { seed: number } : {}),
  });
}

const isBusy = (state: AnswerState): boolean =>
  state.phase === "opening" || state.phase === "generating";

function Prompt({ model }: { model: string }) {
  const { prompt, mode } = form.value;
  const field = useId();
  const busy = isBusy(answer.value);
  const last = answer.value.request;
  return (
    <section class="panel prompt" aria-label="Prompt">
      <label class="unseen" for={field}>
        Prompt
      </label>
      <textarea
        id={field}
        rows={4}
        value={prompt}
        placeholder={mode === "chat" ? "Ask something" : "Text to go on with, as: Once upon a time"}
        onInput={(event) => change({ prompt: event.currentTarget.value })}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            run(model);
          }
        }}
      />
      <div class="prompt-foot">
        <Segmented
          legend="Mode"
          value={mode}
          small
          options={[
            { value: "chat", label: "Chat" },
            { value: "text", label: "Text" },
          ]}
          onChange={(chosen) => change({ mode: chosen })}
        />
        <div class="prompt-actions">
          {last !== undefined && !busy && (
            <button
              type="button"
              class="button"
              onClick={() => void begin(last)}
              title="The same request, word for word"
            >
              <Icon name="again" size={14} />
              Again
            </button>
          )}
          {busy ? (
            <button type="button" class="button run" onClick={stop}>
              <Icon name="stop" size={13} />
              Stop
            </button>
          ) : (
            <button
              type="button"
              class="button primary run"
              onClick={() => run(model)}
              disabled={prompt.trim() === ""}
            >
              Run
              <kbd>{/Mac|iP/.test(navigator.platform) ? "⌘↵" : "Ctrl ↵"}</kbd>
            </button>
          )}
        </div>
      </div>
    </section>
  );
}

function AnswerPanel() {
  const state = answer.value;
  const { phase, runs, problem, done } = state;
  return (
    <Panel
      title="Answer"
      note={<Pair state={state} />}
      class="answer-panel"
      flush
      end={
        <label class="switch">
          <input
            type="checkbox"
            role="switch"
            checked={showDrafted.value}
            onChange={(event) => (showDrafted.value = event.currentTarget.checked)}
          />
          Mark drafted tokens
        </label>
      }
    >
      <Stats state={state} />
      <AnswerText runs={runs} phase={phase} marked={showDrafted.value} />
      <div class="answer-foot small quiet">
        {showDrafted.value && (
          <>
            <span class="drafted-sample">
              <b class="drafted">drafted</b> by the proposer, accepted
            </span>
            <span>plain: the verifier’s own</span>
          </>
        )}
        <span class="answer-said" role="status">
          {phase === "done" &&
            done !== undefined &&
            `Ended: ${done.stopReason.replaceAll("_", " ").toLowerCase()}`}
          {phase === "stopped" && "Stopped"}
          {phase === "opening" && "Opening a session"}
          {phase === "generating" && "Generating"}
        </span>
      </div>
      {state.notes.map((note) => (
        <p class="answer-note small" key={note}>
          <Icon name="again" size={13} />
          Went on elsewhere, with the same stream: {note}
        </p>
      ))}
      {done !== undefined && done.dropReason !== "" && (
        <p class="answer-note small">
          <Icon name="warning" size={13} />
          It decoded alone at the end: {done.dropReason.replaceAll("_", " ").toLowerCase()}
        </p>
      )}
      {done !== undefined && done.forgottenTokenCount > 0 && (
        <p class="answer-note small">
          <Icon name="warning" size={13} />
          It sees {plural(done.forgottenTokenCount, "token")} of its history no more: a restored or
          a full session sees them all.
        </p>
      )}
      {problem !== undefined && (
        <div class="panel-body">
          <ProblemBox problem={problem} />
        </div>
      )}
    </Panel>
  );
}

interface AnswerTextProps {
  runs: readonly Run[];
  phase: AnswerState["phase"];
  marked: boolean;
}

/** Follows its end while the reader is there. It is not a live region: tokens would spam it. */
function AnswerText({ runs, phase, marked }: AnswerTextProps) {
  const place = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  useEffect(() => {
    const element = place.current;
    if (element !== null && following.current) element.scrollTop = element.scrollHeight;
  });
  return (
    <div
      class={marked ? "answer-text marked" : "answer-text"}
      ref={place}
      tabIndex={0}
      role="region"
      aria-label="The answer's text"
      onScroll={(event) => {
        const element = event.currentTarget;
        following.current = element.scrollHeight - element.scrollTop - element.clientHeight < 24;
      }}
    >
      {runs.length === 0 && phase === "idle" && (
        <span class="quiet">
          The answer streams here. Tokens that a proposer drafted are marked; the verifier decided
          every one of them.
        </span>
      )}
      {runs.map((each, index) => (
        <RunText key={index} run={each} />
      ))}
      {(phase === "opening" || phase === "generating") && <span class="caret" aria-hidden="true" />}
    </div>
  );
}

const RunText = memo(function RunText({ run: { drafted, pieces } }: { run: Run }) {
  if (!drafted) return <span>{pieces.join("")}</span>;
  return (
    <>
      {pieces.map((piece, index) => (
        <span class="drafted" key={index}>
          {piece}
        </span>
      ))}
    </>
  );
});

function Stats({ state }: { state: AnswerState }) {
  const { done } = state;
  const first =
    done?.firstTokenSeconds ??
    (state.firstAt > 0 ? (state.firstAt - state.startedAt) / 1000 : Number.NaN);
  const rate =
    done !== undefined && done.seconds > 0 ? done.generatedTokenCount / done.seconds : speed(state);
  const accepted =
    done !== undefined && done.draftedCount > 0
      ? done.acceptedCount / done.draftedCount
      : Number.NaN;
  return (
    <dl class="stats">
      <Stat name="Speed" value={tokenRate(rate)} unit="tok/s" />
      <Stat name="First token" value={duration(first)} />
      <Stat name="Tokens" value={state.phase === "idle" ? "—" : count(state.tokenCount)} />
      <Stat
        name="Drafted share"
        value={state.tokenCount > 0 ? percent(state.draftedCount / state.tokenCount) : "—"}
      />
      <Stat name="Accepted" value={percent(accepted)} />
      <Stat
        name="Acceptance length"
        value={
          done !== undefined && done.acceptanceLength > 0 ? done.acceptanceLength.toFixed(2) : "—"
        }
      />
    </dl>
  );
}

/** Who verifies, and who drafts for it. */
function Pair({ state: { nodeId, plan } }: { state: AnswerState }) {
  if (nodeId === "") return null;
  const drafter = plan?.proposer?.nodeId;
  return (
    <>
      by <NodeLink nodeId={nodeId} />
      {drafter !== undefined && (
        <>
          , drafted by <NodeLink nodeId={drafter} />
        </>
      )}
    </>
  );
}

function Stat({ name, value, unit = "" }: { name: string; value: string; unit?: string }) {
  return (
    <div class="stat">
      <dt>{name}</dt>
      <dd>
        {value} {unit !== "" && <small>{unit}</small>}
      </dd>
    </div>
  );
}

function Blocks() {
  const { blocks, sessionId, nodeId } = answer.value;
  if (blocks.length === 0) return null;
  return (
    <Panel
      title="Last blocks"
      flush
      end={
        <a class="link small" href={href("session", `${nodeId}/${sessionId}`)}>
          The session
        </a>
      }
    >
      <Timeline blocks={blocks} rowCount={BLOCK_ROWS} />
    </Panel>
  );
}

function Settings({ model }: { model: string }) {
  const { maxTokens, temperature, seed, speculation, kvStrategy } = form.value;
  const [modelField, tokensField, temperatureField, seedField] = [
    useId(),
    useId(),
    useId(),
    useId(),
  ];
  return (
    <form class="form" onSubmit={(event) => event.preventDefault()}>
      <div class="field">
        <label for={modelField}>Model</label>
        <select
          id={modelField}
          class="select"
          value={model}
          onChange={(event) => change({ model: event.currentTarget.value })}
        >
          {verifierModels.value.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </div>
      <div class="form-pair">
        <div class="field">
          <label for={tokensField}>Most tokens</label>
          <input
            id={tokensField}
            class="input"
            type="number"
            inputMode="numeric"
            min={1}
            value={maxTokens}
            onChange={(event) => {
              const typed = Math.floor(Number(event.currentTarget.value));
              if (typed >= 1) change({ maxTokens: typed });
            }}
          />
        </div>
        <div class="field">
          <label for={seedField}>Seed</label>
          <input
            id={seedField}
            class="input"
            type="text"
            inputMode="numeric"
            pattern="[0-9]*"
            placeholder="drawn"
            value={seed}
            onInput={(event) => change({ seed: event.currentTarget.value.replaceAll(/\D/g, "") })}
          />
        </div>
      </div>
      <div class="field">
        <label for={temperatureField}>
          Temperature{" "}
          <output class="output">{temperature === 0 ? "0, greedy" : temperature.toFixed(2)}</output>
        </label>
        <input
          id={temperatureField}
          class="range"
          type="range"
          min={0}
          max={2}
          step={0.05}
          value={temperature}
          style={{ "--done": `${temperature * 50}%` }}
          onInput={(event) => change({ temperature: Number(event.currentTarget.value) })}
        />
      </div>
      <div class="field">
        <span class="label">Speculation</span>
        <Segmented
          legend="Speculation"
          value={speculation}
          options={[
            { value: "auto", label: "Auto" },
            { value: "off", label: "Off" },
          ]}
          onChange={(chosen) => change({ speculation: chosen })}
        />
        <span class="hint">The answer is the same either way; only its speed is not.</span>
      </div>
      <div class="field">
        <span class="label">K/V</span>
        <Segmented
          legend="K/V strategy"
          value={kvStrategy}
          options={STRATEGIES}
          onChange={(chosen) => change({ kvStrategy: chosen })}
        />
      </div>
    </form>
  );
}

function ModelSnippets({ model }: { model: string }) {
  const holder = nodesByOffer.value.find(
    (node) =>
      !isDown(node) &&
      node.models.some((each) => each.modelId === model && each.role === "verifier"),
  );
  if (holder === undefined) return <p class="quiet">No live node serves it.</p>;
  return <Snippets address={holder.address} httpAddress={holder.httpAddress} model={model} />;
}
