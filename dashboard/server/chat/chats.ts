import { randomBytes } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

import { KakeyaError, type Client, type Session } from "@kakeya/runtime";
import type { TextCodec } from "@kakeya/runtime/text";

import type { ChatMessage, ChatRequest } from "../../shared/messages";
import { Fields } from "../http/fields";
import { askedStrategy, STRATEGIES } from "../http/strategy";
import { LIMITS } from "../../shared/limits";
import { Refused } from "../problem";
import { planView } from "../views/plan_view";
import { Conversation } from "./conversation";

/** Milliseconds after which a session that nothing is asked of is closed. */
const IDLE_MS = LIMITS.sessionSeconds * 1000;
/** Milliseconds that an answer which was just stopped has to end before the next one. */
const STOP_MS = 2000;

/** Turns of a conversation that a request may bring. */
const TURN_LIMIT = 2048;

interface Held {
  key: string;
  client: Client;
  session: Session;
  codec: TextCodec;
  conversation: Conversation;
  /** What the session was opened for, which a request that goes on with it asks for, too. */
  terms: string;
  /** Resolves once its answer ended; null while it answers nothing. */
  answers: Promise<void> | null;
  /** Ends the answer. */
  end: () => void;
  usedAt: number;
}

/** What generation needs of the process. */
export interface Surroundings {
  /** A client of the node to ask first. */
  client(): Client;
  /** Id of the node at an address; empty when it is not known. */
  nodeAt(address: string): string;
}

/** The sessions that pages opened for their chats, and nobody else's. */
export class Chats {
  readonly #surroundings: Surroundings;
  readonly #held = new Map<string, Held>();
  readonly #timer: NodeJS.Timeout;

  constructor(surroundings: Surroundings) {
    this.#surroundings = surroundings;
    this.#timer = setInterval(() => void this.#closeIdle(), IDLE_MS / 10);
    this.#timer.unref();
  }

  /**
   * Goes on with the session that the request names, or opens one where that is gone or is
   * another model's, and tells the answer as it is made. Aborting `signal` stops the work on
   * the node. Throws Refused and what the SDK throws.
   */
  async *generate(body: Record<string, unknown>, signal: AbortSignal): AsyncGenerator<ChatMessage> {
    const request = requestOf(body);
    const began = performance.now();
    const held = await this.#obtain(request, signal);
    try {
      const asked = yield* held.conversation.ask(request, signal);
      const info = await held.session.info({ signal });
      yield opened(held.key, info, asked);
      yield* held.conversation.answer(request, began, signal, this.#surroundings);
    } finally {
      held.end();
      held.usedAt = Date.now();
    }
  }

  /** Closes a session; one that is not there any more is closed. */
  async close(key: string): Promise<void> {
    const held = this.#held.get(key);
    if (held === undefined) return;
    this.#held.delete(key);
    try {
      await held.session.close();
    } catch (error) {
      // A session that cannot be closed is evicted by its node once it was idle.
      if (!(error instanceof KakeyaError)) throw error;
    } finally {
      await held.client.close();
    }
  }

  async end(): Promise<void> {
    clearInterval(this.#timer);
    await Promise.all([...this.#held.keys()].map((key) => this.close(key)));
  }

  async #obtain(request: ChatRequest, signal: AbortSignal): Promise<Held> {
    const known = this.#held.get(request.sessionKey);
    if (known !== undefined) {
      await Promise.race([known.answers, pause(STOP_MS, undefined, { signal, ref: false })]);
      if (known.answers !== null) {
        throw new Refused(409, "SESSION_BUSY", "The session answers already.");
      }
      if (known.terms === termsOf(request)) return begun(known);
      await this.close(known.key);
    }
    await this.#makeRoom();
    const client = this.#surroundings.client();
    try {
      // Tokenizers are large: they are read when the first answer is asked for.
      const { textCodec } = await import("@kakeya/runtime/text");
      const codec = await textCodec(client, request.model, { signal });
      if (request.mode === "chat" && !codec.hasChatTemplate) {
        throw new Refused(400, "NO_CHAT_TEMPLATE", `${request.model} has no chat template.`);
      }
      const session = await client.createSession(request.model, {
        kvStrategy: askedStrategy(request.kvStrategy),
        speculation: request.speculation,
        stopTokenIds: [...codec.stopTokenIds],
        clientLabel: "dashboard chat",
        resume: true,
        signal,
      });
      const held: Held = {
        key: randomBytes(16).toString("hex"),
        client,
        session,
        codec,
        conversation: new Conversation(session, codec),
        terms: termsOf(request),
        answers: null,
        end: () => undefined,
        usedAt: Date.now(),
      };
      this.#held.set(held.key, held);
      return begun(held);
    } catch (error) {
      await client.close();
      throw error;
    }
  }

  async #makeRoom(): Promise<void> {
    if (this.#held.size < LIMITS.sessions) return;
    const idle = [...this.#held.values()]
      .filter((held) => held.answers === null)
      .sort((one, other) => one.usedAt - other.usedAt)[0];
    if (idle === undefined) {
      throw new Refused(
        429,
        "PLAYGROUND_FULL",
        `${LIMITS.sessions} answers are being made already.`,
      );
    }
    await this.close(idle.key);
  }

  async #closeIdle(): Promise<void> {
    const now = Date.now();
    const idle = [...this.#held.values()].filter(
      (held) => held.answers === null && now - held.usedAt > IDLE_MS,
    );
    for (const held of idle) await this.close(held.key);
  }
}

/** `held`, which answers from now on: at once, so that of two requests one is refused. */
function begun(held: Held): Held {
  held.answers = new Promise((resolve) => {
    held.end = () => {
      held.answers = null;
      resolve();
    };
  });
  return held;
}

/** What a session cannot change any more. */
function termsOf({ model, mode, speculation, kvStrategy }: ChatRequest): string {
  return JSON.stringify([model, mode, speculation, kvStrategy]);
}

function opened(
  sessionKey: string,
  info: Awaited<ReturnType<Session["info"]>>,
  asked: { kept: number; length: number },
): ChatMessage {
  return {
    type: "opened",
    sessionKey,
    sessionId: info.sessionId,
    nodeId: info.plan.verifier.nodeId,
    historyLength: asked.length,
    keptTokenCount: asked.kept,
    plan: planView(info.plan),
  };
}

const ROLES = ["user", "assistant"] as const;

function requestOf(body: Record<string, unknown>): ChatRequest {
  const fields = new Fields(body);
  const turns = fields.list("turns", TURN_LIMIT).map((turn) => ({
    role: turn.choice("role", ROLES),
    content: turn.optionalText("content"),
  }));
  return {
    sessionKey: fields.optionalText("sessionKey", 64),
    model: fields.text("model", 512),
    mode: fields.choice("mode", ["chat", "text"]),
    system: fields.optionalText("system"),
    turns,
    maxTokens: fields.whole("maxTokens", 1, 2 ** 20),
    temperature: fields.number("temperature", 0, 100),
    ...(fields.given("seed") ? { seed: fields.whole("seed", 0, Number.MAX_SAFE_INTEGER) } : {}),
    speculation: fields.choice("speculation", ["auto", "off"]),
    kvStrategy: fields.choice("kvStrategy", STRATEGIES),
  };
}
