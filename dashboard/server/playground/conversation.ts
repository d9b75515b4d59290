import type { Session } from "@kakeya/runtime";
import type { TextCodec } from "@kakeya/runtime/text";

import type { PlaygroundMessage, PlaygroundRequest } from "../../shared/messages";
import { blockView } from "../views/session_view";

type Turn = { role: "user" | "assistant"; content: string };

/** The text of one session: what was said, and what of it the session's history has. */
export class Conversation {
  readonly #session: Session;
  readonly #codec: TextCodec;
  readonly #mode: PlaygroundRequest["mode"];
  readonly #turns: Turn[] = [];
  /** What the history says, special tokens included. */
  #said = "";

  constructor(session: Session, codec: TextCodec, mode: PlaygroundRequest["mode"]) {
    this.#session = session;
    this.#codec = codec;
    this.#mode = mode;
  }

  /** Appends the prompt; answers how many tokens that were. */
  async ask(request: PlaygroundRequest, signal: AbortSignal): Promise<number> {
    const ids =
      this.#mode === "text" ? this.#codec.encode(request.prompt) : await this.#chat(request.prompt);
    await this.#session.append(ids, { signal });
    return ids.length;
  }

  /** Generates, piece by piece of text. */
  async *answer(
    request: PlaygroundRequest,
    began: number,
    signal: AbortSignal,
    nodes: { nodeAt(address: string): string },
  ): AsyncGenerator<PlaygroundMessage> {
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
      const ids = this.#session.history.slice(from);
      this.#said += this.#codec.decode(ids);
      const content = this.#codec.decode(ids, { skipSpecialTokens: true });
      this.#turns.push({ role: "assistant", content });
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

  /** What the rendered chat has beyond the history. */
  async #chat(prompt: string): Promise<readonly number[]> {
    this.#turns.push({ role: "user", content: prompt });
    const before = this.#said;
    this.#said = this.#codec.renderChat(this.#turns, { addGenerationPrompt: true });
    if (this.#said.startsWith(before)) return this.#codec.encode(this.#said.slice(before.length));
    // The template writes an answer otherwise than the model did: the history is taken back to
    // where both are one.
    const ids = this.#codec.encode(this.#said);
    const { history } = this.#session;
    let common = 0;
    while (common < history.length && history[common] === ids[common]) common += 1;
    if (common < history.length) await this.#session.rewind(common);
    return ids.slice(common);
  }
}
