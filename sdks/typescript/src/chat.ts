/** A chat: words out, an answer's words back, over one session. */

import { Answer, Floor, LONGEST_ANSWER, Words, type Begun, type Speech } from "./answer.js";
import { Conversation, plainText, type Message, type Render } from "./conversation.js";
import { BadRequest, ChatTemplateNotFound, ModelNotFound } from "./errors.js";
import type { CallOptions } from "./fleet.js";
import type { SamplingOptions, SayOptions } from "./generate-options.js";
import type { Generation } from "./generation.js";
import type { Session } from "./session.js";
import type { TextCodec } from "./text/codec.js";
import type { NodeStatus } from "./values/watch.js";

/** How a chat speaks, whatever its session is. */
export interface ChatTerms {
  /** What the system says before all else. */
  readonly system?: string | undefined;
  /** Join the turns plainly, each with a line's end: for a model without a chat template. */
  readonly plain?: boolean | undefined;
  /** The template's own variables, such as `{ enable_thinking: false }`. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
  /** The longest answer, unless its `say` tells another; 2,048 unless given. */
  readonly maxTokens?: number | undefined;
  /** How answers choose their tokens, unless their `say` tells otherwise. */
  readonly sampling?: SamplingOptions | undefined;
  /** Ids that end an answer, besides those of the model's tokenizer. */
  readonly stopTokenIds?: readonly number[] | undefined;
}

/**
 * A conversation with a model. Made by `Client.chat`.
 *
 * Each turn appends its own tokens alone; where the model's template writes earlier turns
 * anew, the session goes back to the longest prefix that still holds. What arrived of an
 * answer that was left stays in the conversation, as it was said; an answer that was left or
 * failed before its first token takes its question back. `await using` closes the session.
 */
export class Chat {
  readonly #session: Session;
  readonly #codec: TextCodec;
  readonly #terms: ChatTerms;
  readonly #conversation: Conversation;
  readonly #floor = new Floor();
  // The latest exchange, until its answer is in the conversation.
  #exchange: Exchange | undefined;

  constructor(session: Session, codec: TextCodec, render: Render, terms: ChatTerms) {
    this.#session = session;
    this.#codec = codec;
    this.#terms = terms;
    this.#conversation = new Conversation(codec, render, terms.system);
  }

  /**
   * The session that holds the conversation as token ids.
   *
   * What is appended or rewound there by hand, the next turn undoes.
   */
  get session(): Session {
    return this.#session;
  }

  /**
   * What was said, oldest first, the system's words before all else.
   *
   * An answer that is not at its end is there as far as it came.
   */
  get messages(): readonly Message[] {
    const said = this.#exchange?.words.text ?? "";
    const { messages } = this.#conversation;
    return said === "" ? messages : [...messages, { role: "assistant", content: said }];
  }

  /**
   * The person's next words; gives the answer.
   *
   * Options count for this answer, in place of the chat's. Throws BadRequest. Nothing is sent
   * before the iteration begins, which throws SessionBusy while another answer comes,
   * ChatTemplateError, and what `Session.append` and `generate` throw; the conversation then
   * goes on from where it was.
   */
  say(text: string, options: SayOptions = {}): Answer {
    const { maxTokens = LONGEST_ANSWER, sampling, stopTokenIds = [] } = this.#terms;
    const asked = { ...sampling, ...options, maxTokens: options.maxTokens ?? maxTokens };
    const stops = [...this.#codec.stopTokenIds, ...stopTokenIds, ...(asked.stopTokenIds ?? [])];
    const exchange: Exchange = {
      question: text,
      generation: this.#session.generate(asked),
      words: new Words(this.#codec, stops),
    };
    const speech: Speech = {
      begin: (answer) => this.#ask(exchange, answer, options),
      end: () => this.#keep(exchange),
    };
    return new Answer(speech);
  }

  /**
   * Forgets the latest question and its answer; gives the question, null without one.
   *
   * The session goes back with the next turn. Throws SessionBusy while an answer comes.
   */
  undo(): string | null {
    this.#floor.check();
    return this.#conversation.takeBack()?.content ?? null;
  }

  /** Closes the session. Throws SessionNotFound the second time. */
  close(options: CallOptions = {}): Promise<void> {
    return this.#session.close(options);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#session[Symbol.asyncDispose]();
  }

  /** Brings the history to where the answer begins. */
  async #ask(exchange: Exchange, answer: Answer, { signal }: CallOptions): Promise<Begun> {
    this.#floor.take(answer);
    const session = this.#session;
    const { history } = session;
    const { keep, append } = this.#conversation.ask(exchange.question, history);
    this.#exchange = exchange;
    if (keep < history.length) {
      await session.rewind(keep, { signal });
    }
    if (append.length > 0) {
      await session.append(append, { signal });
    }
    exchange.answerBegins = session.historyLength;
    return exchange;
  }

  /** Puts the answer of an exchange into the conversation. */
  #keep(exchange: Exchange): void {
    if (this.#exchange !== exchange) {
      return;
    }
    this.#exchange = undefined;
    const { answerBegins, words } = exchange;
    const received = answerBegins === undefined ? [] : this.#session.history.slice(answerBegins);
    if (received.length > 0) {
      this.#conversation.answered(received, words.text);
    } else {
      this.#conversation.takeBack();
    }
  }
}

/** A question and its answer. */
interface Exchange {
  readonly question: string;
  readonly generation: Generation;
  readonly words: Words;
  /** The length of the history before the answer; none until the question is appended. */
  answerBegins?: number;
}

/** How a chat becomes text. Throws ChatTemplateNotFound for a model without a template. */
export function rendering(codec: TextCodec, model: string, terms: ChatTerms): Render {
  if (terms.plain === true) {
    return plainText;
  }
  if (!codec.hasChatTemplate) {
    throw new ChatTemplateNotFound(
      `${model} has no chat template, so its turns cannot be told apart: join them plainly ` +
        "(plain), or let a session say text as it is",
      { metadata: { model } },
    );
  }
  const { variables } = terms;
  return (messages) =>
    codec.renderChat(
      messages.map(({ role, content }) => ({ role, content })),
      { variables },
    );
}

/**
 * The one model that live nodes verify.
 *
 * Throws ModelNotFound for none, BadRequest for several, which `metadata.models` lists.
 */
export function onlyVerifier(nodes: readonly NodeStatus[]): string {
  const offers = nodes
    .filter((node) => node.liveness === "alive")
    .flatMap((node) => node.models)
    .filter((offer) => offer.role === "verifier");
  const models = [...new Set(offers.map((offer) => offer.modelId))].sort();
  const [first] = models;
  if (first === undefined) {
    throw new ModelNotFound("no live node serves a verifier", {
      metadata: { mend: "start one: fleet join --serve verifier=MODEL" },
    });
  }
  if (models.length > 1) {
    const listed = models.join(", ");
    throw new BadRequest(`the fleet serves several verifiers: model is one of ${listed}`, {
      metadata: { field: "model", models: listed },
    });
  }
  return first;
}
