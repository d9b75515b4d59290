import { useState } from "preact/hooks";

import { second } from "../clock";
import { ago } from "../format";
import { Icon } from "../icon";
import { chats, current, isKept, newChat, openChat, remove, removeAll } from "./conversing";
import { titleOf } from "./store";

/** The chats that this browser keeps. */
export function ChatList({ onChosen }: { onChosen: () => void }) {
  const [isClearing, setClearing] = useState(false);
  const all = chats.value;
  return (
    <nav class="chat-list" aria-label="Chats">
      <button
        type="button"
        class="button"
        onClick={() => {
          newChat();
          onChosen();
        }}
      >
        <Icon name="plus" size={14} />
        New chat
      </button>
      <ul>
        {all.map((chat) => (
          <li key={chat.id} class={chat.id === current.value.id ? "here" : ""}>
            <button
              type="button"
              class="chat-link"
              aria-current={chat.id === current.value.id}
              onClick={() => {
                openChat(chat.id);
                onChosen();
              }}
            >
              <span class="clip" title={titleOf(chat)}>
                {titleOf(chat)}
              </span>
              <small class="quiet">{ago(chat.at, second.value)}</small>
            </button>
            <button
              type="button"
              class="icon-button"
              aria-label={`Delete: ${titleOf(chat)}`}
              onClick={() => remove(chat.id)}
            >
              <Icon name="cross" size={13} />
            </button>
          </li>
        ))}
      </ul>
      <div class="chat-list-foot small quiet">
        {!isKept.value && (
          <p>The latest is not kept: it is too long, or the browser keeps nothing.</p>
        )}
        {all.length > 0 &&
          (isClearing ? (
            <div class="row">
              <button
                type="button"
                class="button small danger"
                onClick={() => {
                  setClearing(false);
                  removeAll();
                }}
              >
                Delete all
              </button>
              <button type="button" class="button small" onClick={() => setClearing(false)}>
                Keep
              </button>
            </div>
          ) : (
            <button type="button" class="text-button" onClick={() => setClearing(true)}>
              Clear
            </button>
          ))}
        <p>Kept in this browser only.</p>
      </div>
    </nav>
  );
}
