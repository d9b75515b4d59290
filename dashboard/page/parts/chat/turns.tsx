import { memo } from "preact/compat";
import { useEffect, useRef, useState } from "preact/hooks";

import { CopyButton } from "../copy";
import { count, duration, percent, plural, tokenRate } from "../format";
import { Icon } from "../icon";
import { speed, textOf, type AnswerState } from "./answer";
import { Growing } from "./growing";
import { Markdown } from "./markdown_view";
import type { AnswerFacts, Turn } from "./store";

interface QuestionProps {
  content: string;
  isEditing: boolean;
  onEdit: () => void;
  onLeave: () => void;
  onAsk: (content: string) => void;
}

/** What the person said, which can be said in other words. */
export function Question({ content, isEditing, onEdit, onLeave, onAsk }: QuestionProps) {
  if (isEditing) return <QuestionEditor {...{ content, onLeave, onAsk }} />;
  return (
    <div class="question">
      <p class="question-text">{content}</p>
      <div class="turn-acts">
        <button
          type="button"
          class="icon-button"
          aria-label="Edit the question"
          title="Edit"
          onClick={onEdit}
        >
          <Icon name="edit" size={14} />
        </button>
        <CopyButton text={content} label="Copy the question" />
      </div>
    </div>
  );
}

function QuestionEditor({
  content,
  onLeave,
  onAsk,
}: Pick<QuestionProps, "content" | "onLeave" | "onAsk">) {
  const [text, setText] = useState(content);
  const ask = (): void => {
    if (text.trim() !== "") onAsk(text);
  };
  return (
    <form
      class="question editing"
      onSubmit={(event) => {
        event.preventDefault();
        ask();
      }}
    >
      <Growing
        label="The question in other words"
        value={text}
        takesFocus
        onInput={setText}
        onEnter={ask}
        onEscape={onLeave}
      />
      <div class="row">
        <button type="submit" class="button small primary" disabled={text.trim() === ""}>
          Ask
        </button>
        <button type="button" class="button small" onClick={onLeave}>
          Cancel
        </button>
        <span class="quiet small">What follows it is answered anew</span>
      </div>
    </form>
  );
}

interface AnswerProps {
  turn: Turn;
  /** Nothing is answered in between. */
  onRetry: (() => void) | undefined;
  /** The address of its session's page, while that is there. */
  sessionHref: string;
}

/** An answer that is at its end. */
export const Answer = memo(function Answer({ turn, onRetry, sessionHref }: AnswerProps) {
  const { content, facts } = turn;
  const [isMarked, setMarked] = useState(false);
  return (
    <div class="answer">
      {isMarked && facts !== undefined ? (
        <Marked content={content} facts={facts} />
      ) : (
        <Prose content={content} />
      )}
      <div class="answer-foot small quiet">
        {facts !== undefined && <Facts facts={facts} />}
        <div class="turn-acts">
          {facts !== undefined && (
            <button
              type="button"
              class="icon-button"
              aria-pressed={isMarked}
              aria-label="Mark drafted tokens"
              title="Who drafted what"
              onClick={() => setMarked(!isMarked)}
            >
              <Icon name="spark" size={14} />
            </button>
          )}
          {onRetry !== undefined && (
            <button
              type="button"
              class="icon-button"
              aria-label="Answer again"
              title="Answer again"
              onClick={onRetry}
            >
              <Icon name="again" size={14} />
            </button>
          )}
          <CopyButton text={content} label="Copy the answer" />
          {sessionHref !== "" && (
            <a class="link" href={sessionHref}>
              Block by block
            </a>
          )}
        </div>
      </div>
    </div>
  );
});

/** How it came about, in a line. */
function Facts({ facts }: { facts: AnswerFacts }) {
  const { tokenCount, tokensPerSecond, firstTokenSeconds, draftedCount, acceptedCount } = facts;
  const parts = [
    ...(tokensPerSecond > 0 ? [`${tokenRate(tokensPerSecond)} tok/s`] : []),
    plural(tokenCount, "token"),
    ...(firstTokenSeconds > 0 ? [`first after ${duration(firstTokenSeconds)}`] : []),
    ...(draftedCount > 0 ? [`${percent(acceptedCount / draftedCount)} of drafts accepted`] : []),
    ...(facts.ended === "max_tokens" ? ["cut at its most tokens"] : []),
    ...(facts.ended === "left" ? ["stopped"] : []),
  ];
  const title = [
    facts.model,
    ...(facts.verifier === "" ? [] : [`on ${facts.verifier}`]),
    ...(facts.proposer === "" ? [] : [`drafted by ${facts.proposer}`]),
    ...(facts.keptTokenCount > 0
      ? [`${count(facts.keptTokenCount)} tokens were there before`]
      : []),
  ].join(", ");
  return (
    <span class="facts-line" title={title}>
      {parts.join(" · ")}
    </span>
  );
}

/** The text as it was said, with what a proposer drafted of it marked. */
function Marked({ content, facts }: { content: string; facts: AnswerFacts }) {
  let at = 0;
  const runs = facts.runs.map((length, index) => {
    const text = content.slice(at, at + length);
    at += length;
    return index % 2 === 1 ? (
      <mark key={index} class="drafted">
        {text}
      </mark>
    ) : (
      <span key={index}>{text}</span>
    );
  });
  const drafter = facts.proposer === "" ? "a proposer" : facts.proposer;
  return (
    <>
      <div class="marked-text">{runs}</div>
      <p class="small quiet">
        {facts.runs.length > 1 ? (
          <>
            <mark class="drafted">Marked</mark>: drafted by {drafter}, and decided by{" "}
            {facts.verifier || "the verifier"} all the same. Plain: its own.
          </>
        ) : (
          `Nothing of it was drafted: all of it is ${facts.verifier || "the verifier"}’s own.`
        )}
      </p>
    </>
  );
}

/** An answer that comes. */
export function LiveAnswer({ state }: { state: AnswerState }) {
  const content = textOf(state);
  const rate = speed(state);
  const isComing = state.phase === "opening" || state.phase === "generating";
  return (
    <div class={isComing ? "answer coming" : "answer"}>
      {content === "" ? (
        isComing && <Waiting reading={state.reading} />
      ) : (
        <Prose content={content} isComing={isComing} />
      )}
      {state.notes.map((note) => (
        <p class="small answer-note" key={note}>
          <Icon name="warning" size={13} /> It went on elsewhere:{" "}
          {note.replaceAll("_", " ").toLowerCase()}
        </p>
      ))}
      {isComing && content !== "" && (
        <p class="answer-foot small quiet">
          {Number.isNaN(rate) ? "" : `${tokenRate(rate)} tok/s · `}
          {plural(state.tokenCount, "token")}
          {state.draftedCount > 0 &&
            ` · ${percent(state.draftedCount / state.tokenCount)} of them drafted`}
        </p>
      )}
    </div>
  );
}

function Waiting({ reading }: Pick<AnswerState, "reading">) {
  return (
    <>
      <p class="waiting" aria-hidden="true">
        <i />
        <i />
        <i />
      </p>
      {reading !== null && (
        <p class="small quiet">
          reading the prompt, {count(reading.readCount)} of {count(reading.tokenCount)} tokens
        </p>
      )}
    </>
  );
}

const THOUGHT = /^\s*<think>([\s\S]*?)(?:<\/think>([\s\S]*))?$/;

/** An answer's text; what a model thinks before it is folded away. */
function Prose({ content, isComing = false }: { content: string; isComing?: boolean }) {
  const place = useRef<HTMLDetailsElement>(null);
  const found = content.trimStart().startsWith("<think>") ? THOUGHT.exec(content) : null;
  const [thought, said] = found === null ? ["", content] : [found[1] ?? "", found[2] ?? ""];
  const isThinking = found !== null && found[2] === undefined;
  useEffect(() => {
    if (place.current !== null && !isThinking) place.current.open = false;
  }, [isThinking]);
  return (
    <div class={isComing ? "prose coming" : "prose"}>
      {thought.trim() !== "" && (
        <details class="thought" ref={place} open={isThinking}>
          <summary>{isThinking ? "Thinking" : "Thought"}</summary>
          <Markdown text={thought} />
        </details>
      )}
      <Markdown text={said} />
    </div>
  );
}
