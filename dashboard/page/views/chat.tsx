import "../styles/views/chat.css";

import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";

import { ChatList } from "../parts/chat/chat_list";
import {
  change,
  closeSessions,
  current,
  edit,
  followKept,
  isAnswering,
  live,
  newChat,
  retry,
  send,
  sessionOf,
  stop,
} from "../parts/chat/conversing";
import { Growing } from "../parts/chat/growing";
import { modelFacts, modelLabel } from "../parts/chat/models";
import { Settings } from "../parts/chat/settings";
import { Answer, LiveAnswer, Question } from "../parts/chat/turns";
import { Empty } from "../parts/empty";
import { Icon } from "../parts/icon";
import { modelName } from "../parts/format";
import { verifierModels } from "../parts/model_choice";
import { PageHead } from "../parts/page_head";
import { Panel } from "../parts/panel";
import { ProblemBox } from "../parts/problem";
import { href, route } from "../parts/route";
import { session } from "../state/fleet";

/** Pixels from the end within which the reader counts as being there. */
const AT_END = 48;

export function ChatPage() {
  useEffect(() => {
    window.addEventListener("pagehide", closeSessions);
    const unfollow = followKept();
    return () => {
      window.removeEventListener("pagehide", closeSessions);
      unfollow();
    };
  }, []);
  const models = verifierModels.value;
  const asked = route.value.query.get("model") ?? "";
  useEffect(() => {
    if (asked === "") return;
    if (current.peek().turns.length > 0) newChat();
    change({ model: asked });
  }, [asked]);
  const [aside, setAside] = useState<"" | "chats" | "settings">("");
  const wanted = current.value.model;
  const model = models.includes(wanted) ? wanted : (models[0] ?? "");
  if (models.length === 0) {
    return (
      <>
        <PageHead title="Chat" />
        <Panel title="Nobody answers yet">
          <Empty title="No node verifies a model" command="fleet load smollm2">
            A chat needs a model. The command below loads a small one into a node that runs; so does{" "}
            <a class="link" href={href("models")}>
              Models
            </a>
            .
          </Empty>
        </Panel>
      </>
    );
  }
  const toggle = (which: "chats" | "settings"): void => setAside(aside === which ? "" : which);
  return (
    <div class={`chat ${aside === "" ? "" : `with-${aside}`}`}>
      <ChatList onChosen={() => setAside(aside === "chats" ? "" : aside)} />
      <div class="chat-main">
        <PageHead title="Chat">
          <ModelPicker models={models} model={model} />
          <span class="end">
            <button
              type="button"
              class="icon-button only-narrow"
              aria-label="Chats"
              aria-expanded={aside === "chats"}
              onClick={() => toggle("chats")}
            >
              <Icon name="history" size={17} />
            </button>
            <button
              type="button"
              class="icon-button only-narrow"
              aria-label="New chat"
              onClick={newChat}
            >
              <Icon name="plus" size={17} />
            </button>
            <button
              type="button"
              class="icon-button"
              aria-label="Settings"
              title="Settings"
              aria-expanded={aside === "settings"}
              onClick={() => toggle("settings")}
            >
              <Icon name="settings" size={17} />
            </button>
          </span>
        </PageHead>
        <Conversation key={current.value.id} model={model} />
      </div>
      {aside === "settings" && <Settings model={model} />}
    </div>
  );
}

function ModelPicker({ models, model }: { models: readonly string[]; model: string }) {
  const field = useId();
  const facts = modelFacts(model);
  return (
    <div class="model-picker">
      <label class="unseen" for={field}>
        Model
      </label>
      <select
        id={field}
        class="select"
        value={model}
        title={model}
        onChange={(event) => change({ model: event.currentTarget.value })}
      >
        {models.map((each) => (
          <option key={each} value={each}>
            {modelLabel(each)}
          </option>
        ))}
      </select>
      <span class="quiet small clip" title={facts}>
        {facts}
      </span>
    </div>
  );
}

/** What was said, what comes, and the field for what is said next. */
function Conversation({ model }: { model: string }) {
  const { id, turns } = current.value;
  const coming = live.value?.chatId === id ? live.value.state : null;
  const answering = isAnswering.value;
  const [editing, setEditing] = useState(-1);
  const place = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  useLayoutEffect(() => {
    const element = place.current;
    if (element !== null && following.current) element.scrollTop = element.scrollHeight;
  });
  const lastQuestion = turns.findLastIndex(({ role }) => role === "user");
  const held = sessionOf.value.get(id) ?? "";
  const sessionHref = held !== "" && session(held).value !== undefined ? href("session", held) : "";
  const begin = (act: () => void): void => {
    following.current = true;
    setEditing(-1);
    act();
  };
  return (
    <>
      <div
        class="conversation"
        ref={place}
        tabIndex={0}
        role="region"
        aria-label="Conversation"
        onScroll={({ currentTarget: element }) => {
          const left = element.scrollHeight - element.scrollTop - element.clientHeight;
          following.current = left < AT_END;
        }}
      >
        {turns.length === 0 && coming === null && <Beginning model={model} />}
        <ol class="turns">
          {turns.map((turn, index) => (
            <li key={index} class={turn.role}>
              <span class="unseen">{turn.role === "user" ? "You said: " : "Answer: "}</span>
              {turn.role === "user" ? (
                <Question
                  content={turn.content}
                  isEditing={editing === index}
                  onEdit={() => setEditing(index)}
                  onLeave={() => setEditing(-1)}
                  onAsk={(content) => begin(() => edit(index, content, model))}
                />
              ) : (
                <Answer
                  turn={turn}
                  onRetry={answering ? undefined : () => begin(() => retry(index, model))}
                  sessionHref={index === turns.length - 1 ? sessionHref : ""}
                />
              )}
            </li>
          ))}
          {coming !== null && (
            <li class="assistant">
              {coming.phase !== "failed" && <LiveAnswer state={coming} />}
              {coming.problem !== undefined && (
                <div class="stack answer-failed">
                  <ProblemBox problem={coming.problem} />
                  <div>
                    <button
                      type="button"
                      class="button small"
                      onClick={() => begin(() => retry(lastQuestion + 1, model))}
                    >
                      <Icon name="again" size={13} />
                      Ask again
                    </button>
                  </div>
                </div>
              )}
            </li>
          )}
        </ol>
      </div>
      <Composer
        model={model}
        answering={answering}
        takesFocus={editing < 0}
        onSend={(content) => begin(() => send(content, model))}
        onUp={() => setEditing(lastQuestion)}
      />
      <p class="unseen" role="status">
        {answering ? "The answer comes" : turns.at(-1)?.role === "assistant" ? "Answered" : ""}
      </p>
    </>
  );
}

function Beginning({ model }: { model: string }) {
  return (
    <div class="beginning">
      <h2>Ask {modelName(model)}</h2>
      <p class="quiet">
        It answers from your own machines. What you say goes to them and to nobody else.
      </p>
      <dl class="keys small quiet">
        <dt>
          <kbd>Enter</kbd>
        </dt>
        <dd>sends</dd>
        <dt>
          <kbd>Shift Enter</kbd>
        </dt>
        <dd>begins a line</dd>
        <dt>
          <kbd>Esc</kbd>
        </dt>
        <dd>stops</dd>
        <dt>
          <kbd>↑</kbd>
        </dt>
        <dd>edits the last question</dd>
      </dl>
    </div>
  );
}

interface ComposerProps {
  model: string;
  answering: boolean;
  takesFocus: boolean;
  onSend: (content: string) => void;
  onUp: () => void;
}

function Composer({ model, answering, takesFocus, onSend, onUp }: ComposerProps) {
  const [text, setText] = useState("");
  useEffect(() => {
    if (!answering) return undefined;
    const key = (event: KeyboardEvent): void => {
      if (event.key === "Escape") stop();
    };
    window.addEventListener("keydown", key);
    return () => window.removeEventListener("keydown", key);
  }, [answering]);
  const ask = (): void => {
    if (text.trim() === "" || answering) return;
    onSend(text);
    setText("");
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        ask();
      }}
    >
      <Growing
        label={`Ask ${model}`}
        value={text}
        placeholder={`Ask ${modelName(model)}`}
        takesFocus={takesFocus}
        onInput={setText}
        onEnter={ask}
        onUp={onUp}
      />
      {answering ? (
        <button type="button" class="send" aria-label="Stop" title="Stop (Esc)" onClick={stop}>
          <Icon name="stop" size={15} />
        </button>
      ) : (
        <button
          type="submit"
          class="send"
          aria-label="Send"
          title="Send (Enter)"
          disabled={text.trim() === ""}
        >
          <Icon name="send" size={16} />
        </button>
      )}
    </form>
  );
}
