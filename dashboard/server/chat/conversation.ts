import type { Session } from "@kakeya/runtime";
import type { TextCodec } from "@kakeya/runtime/text";

import type { ChatMessage, ChatRequest } from "../../shared/messages";
import { blockView } from "../views/session_view";
import { read } from "./reading";

/** The history's first `length` ids are those of `text`. */
interface Mark {
  length: number;
  text: string;
}

/** How much of a conversation its session held, and how much it holds now, in tokens. */
export interface Held {
  kept: number;
  length: number;
}

/**
 * One session, and the text that its history says.
 *
 * Each request brings the whole conversation: what the history begins with stays, and what
 * follows it otherwise (a question that was edited, an answer that is tried again, a template
 * that writes earlier answers anew) is taken back by a fork of the session.
 */
export class Conversation {
  readonly #session: Session;
  readonly #codec: TextCodec;
  /** By rising length. */
  #marks: readonly Mark[] = [{ length: 0, text: "" }];

  constructor(session: Session, codec: TextCodec) {
    this.#session = session;
    this.#codec = codec;
  }

  /** Brings the history to where the answer begins, and tells how far it is read. */
  async *ask(request: ChatRequest, signal: AbortSignal): AsyncGenerator<ChatMessage, Held> {
    const text = this.#render(request);
    const { keep, append } = this.#continued(text);
    const session = this.#session;
    if (keep < session.historyLength) await session.rewind(keep, { signal });
    this.#marks = this.#marks.filter(({ length }) => length <= keep);
    if (append.length > 0) yield* read(session, append, signal);
    this.#marks = [...this.#marks, { length: session.historyLength, text }];
    return { kept: keep, length: session.historyLength };
  }

  /** Generates, piece by piece of text. */
  async *answer(
    request: ChatRequest,
    began: number,
    signal: AbortSignal,
    nodes: { nodeAt(address: string): string },
  ): AsyncGenerator<ChatMessage> {
    const generation = this.#session.generate({
      maxTokens: request.maxTokens,
      temperature: request.temperature,
      ...(request.seed === undefined ? {} : { seed: request.seed }),
      signal,
    });
    const detokenizer = this.#codec.detokenizer({ skipSpecialTokens: true });
    let resumed = this.#session.resumptions.length;
    const from = this.#session.historyLength;
    let firstTokenSeconds = 0;
    try {
      for await (const tokens of generation) {
        if (firstTokenSeconds === 0) firstTokenSeconds = (performance.now() - began) / 1000;
        const pieces = tokens.tokenIds.map((id) => detokenizer.push([id]));
        for (const move of this.#session.resumptions.slice(resumed)) {
          resumed += 1;
          yield { type: "resumed", nodeId: nodes.nodeAt(move.toAddress), reason: move.reason };
        }
        yield {
          type: "tokens",
          firstIndex: tokens.firstIndex,
          pieces,
          drafted: tokens.draftedCount,
        };
      }
    } finally {
      const said = this.#marks.at(-1)?.text ?? "";
      const ids = this.#session.history.slice(from);
      const text = said + this.#codec.decode(ids);
      this.#marks = [...this.#marks, { length: this.#session.historyLength, text }];
    }
    const { done } = generation;
    if (done === null) return;
    const rest = detokenizer.flush();
    if (rest !== "") {
      // Bytes of a character that the stop cut off.
      yield { type: "tokens", firstIndex: done.historyLength, pieces: [rest], drafted: 0 };
    }
    const { speculation, timings } = done;
    yield {
      type: "done",
      stopReason: done.stopReason,
      generatedTokenCount: done.generatedTokenCount,
      seconds: timings.totalSeconds,
      firstTokenSeconds,
      acceptanceLength: speculation.acceptanceLength,
      draftedCount: speculation.draftedCount,
      acceptedCount: speculation.acceptedCount,
      dropReason: speculation.dropReason ?? "",
      forgottenTokenCount: done.forgottenTokenCount,
      blocks: done.timeline.map(blockView),
    };
  }

  #render({ mode, system, turns }: ChatRequest): string {
    if (mode === "text") return turns.map(({ content }) => content).join("");
    const before = system === "" ? [] : [{ role: "system", content: system }];
    return this.#codec.renderChat([...before, ...turns], { addGenerationPrompt: true });
  }

  /** How many of the history's ids `text` begins with, and the ids that follow them. */
  #continued(text: string): { keep: number; append: readonly number[] } {
    const { history } = this.#session;
    const mark = this.#marks.findLast(
      (each) => each.length <= history.length && text.startsWith(each.text),
    );
    const { length: keep, text: said } = mark ?? { length: 0, text: "" };
    if (keep === history.length)
      return { keep, append: this.#codec.encode(text.slice(said.length)) };
    // As a whole the text may have more ids in common with the history than the marks know of.
    const ids = this.#codec.encode(text);
    let common = 0;
    while (common < history.length && history[common] === ids[common]) common += 1;
    if (common > keep) return { keep: common, append: ids.slice(common) };
    return { keep, append: this.#codec.encode(text.slice(said.length)) };
  }
}
