import { randomBytes } from "node:crypto";

import { KakeyaError, type Client, type Session } from "@kakeya/runtime";
import type { TextCodec } from "@kakeya/runtime/text";

import type { PlaygroundMessage, PlaygroundRequest } from "../../shared/messages";
import { Fields } from "../http/fields";
import { askedStrategy, STRATEGIES } from "../http/strategy";
import { LIMITS } from "../../shared/limits";
import { Refused } from "../problem";
import { planView } from "../views/plan_view";
import { Conversation } from "./conversation";

/** Milliseconds after which a session that nothing is asked of is closed. */
const IDLE_MS = LIMITS.sessionSeconds * 1000;

interface Held {
  key: string;
  client: Client;
  session: Session;
  codec: TextCodec;
  conversation: Conversation;
  model: string;
  busy: boolean;
  usedAt: number;
}

/** What generation needs of the process. */
export interface Surroundings {
  /** A client of the node to ask first. */
  client(): Client;
  /** Id of the node at an address; empty when it is not known. */
  nodeAt(address: string): string;
}

/** The sessions that pages opened, and nobody else's. */
export class Playground {
  readonly #surroundings: Surroundings;
  readonly #held = new Map<string, Held>();
  readonly #timer: NodeJS.Timeout;

  constructor(surroundings: Surroundings) {
    this.#surroundings = surroundings;
    this.#timer = setInterval(() => void this.#closeIdle(), IDLE_MS / 10);
    this.#timer.unref();
  }

  /**
   * Opens a session, or goes on with one, and tells the answer as it is made.
   * Aborting `signal` stops the work on the node. Throws Refused and what the SDK
   * throws.
   */
  async *generate(
    body: Record<string, unknown>,
    signal: AbortSignal,
  ): AsyncGenerator<PlaygroundMessage> {
    const request = requestOf(body);
    const began = performance.now();
    const held = await this.#obtain(request, signal);
    if (held.busy) throw new Refused(409, "SESSION_BUSY", "The session answers already.");
    held.busy = true;
    try {
      const promptTokenCount = await held.conversation.ask(request, signal);
      const info = await held.session.info({ signal });
      yield this.#opened(held, info, promptTokenCount);
      yield* held.conversation.answer(request, began, signal, this.#surroundings);
    } finally {
      held.busy = false;
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

  async #obtain(request: PlaygroundRequest, signal: AbortSignal): Promise<Held> {
    if (request.sessionKey !== "") {
      const held = this.#held.get(request.sessionKey);
      if (held === undefined) {
        throw new Refused(404, "SESSION_NOT_FOUND", "The playground's session was closed.");
      }
      return held;
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
        clientLabel: "dashboard playground",
        resume: true,
        signal,
      });
      const held: Held = {
        key: randomBytes(16).toString("hex"),
        client,
        session,
        codec,
        conversation: new Conversation(session, codec, request.mode),
        model: request.model,
        busy: false,
        usedAt: Date.now(),
      };
      this.#held.set(held.key, held);
      return held;
    } catch (error) {
      await client.close();
      throw error;
    }
  }

  #opened(
    held: Held,
    info: Awaited<ReturnType<Session["info"]>>,
    promptTokenCount: number,
  ): PlaygroundMessage {
    return {
      type: "opened",
      sessionKey: held.key,
      sessionId: info.sessionId,
      nodeId: info.plan.verifier.nodeId,
      promptTokenCount,
      plan: planView(info.plan),
    };
  }

  async #makeRoom(): Promise<void> {
    if (this.#held.size < LIMITS.sessions) return;
    const idle = [...this.#held.values()]
      .filter((held) => !held.busy)
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
      (held) => !held.busy && now - held.usedAt > IDLE_MS,
    );
    for (const held of idle) await this.close(held.key);
  }
}

function requestOf(body: Record<string, unknown>): PlaygroundRequest {
  const fields = new Fields(body);
  return {
    sessionKey: fields.optionalText("sessionKey", 64),
    model: fields.text("model", 512),
    mode: fields.choice("mode", ["chat", "text"]),
    prompt: fields.text("prompt"),
    maxTokens: fields.whole("maxTokens", 1, 2 ** 20),
    temperature: fields.number("temperature", 0, 100),
    ...(fields.given("seed") ? { seed: fields.whole("seed", 0, Number.MAX_SAFE_INTEGER) } : {}),
    speculation: fields.choice("speculation", ["auto", "off"]),
    kvStrategy: fields.choice("kvStrategy", STRATEGIES),
  };
}
