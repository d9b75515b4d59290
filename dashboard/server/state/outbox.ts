import type { BlockView, Message } from "../../shared/messages";

/** Milliseconds that messages are gathered for; the first after a pause goes at once. */
const GATHER_MS = 100;

type SessionMessage = Extract<Message, { type: "session" }>;

/**
 * Gathers messages and sends them in their order, several changes of one node or
 * session as one: what nodes tell ten times a second each costs a page no more
 * than ten messages a second for each of them together.
 */
export class Outbox {
  readonly #send: (messages: readonly Message[]) => void;
  /** By what a message replaces; messages that replace nothing have keys of their own. */
  #waiting = new Map<string, Message>();
  #count = 0;
  #timer: NodeJS.Timeout | undefined;
  #sentAt = 0;

  constructor(send: (messages: readonly Message[]) => void) {
    this.#send = send;
  }

  put(message: Message): void {
    // A whole fleet makes every message before it void.
    if (message.type === "fleet") this.#waiting.clear();
    const key = this.#key(message);
    const before = this.#waiting.get(key);
    // The latest word takes the latest place, so that order between kinds stays.
    this.#waiting.delete(key);
    this.#waiting.set(key, merged(before, message));
    if (this.#timer !== undefined) return;
    const pause = Math.max(0, this.#sentAt + GATHER_MS - Date.now());
    this.#timer = setTimeout(() => this.flush(), pause);
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sentAt = Date.now();
    const messages = [...this.#waiting.values()];
    this.#waiting = new Map();
    if (messages.length > 0) this.#send(messages);
  }

  #key(message: Message): string {
    switch (message.type) {
      case "node":
        return `node ${message.node.nodeId}`;
      case "session":
        return sessionKey(message.session.nodeId, message.session.sessionId);
      case "transfer":
        return `transfer ${message.transfer.nodeId}/${message.transfer.transferId}`;
      case "gateway":
        return "gateway";
      default:
        this.#count += 1;
        return `message ${this.#count}`;
    }
  }
}

function sessionKey(nodeId: string, sessionId: string): string {
  return `session ${nodeId}/${sessionId}`;
}

function merged(before: Message | undefined, message: Message): Message {
  if (before?.type !== "session" || message.type !== "session") return message;
  const blocks: BlockView[] = [...before.blocks, ...message.blocks];
  return { ...message, blocks } satisfies SessionMessage;
}
