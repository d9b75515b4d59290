/**
 * A chat in the terminal, over one session: `node chat.js HOST:PORT [MODEL]`.
 *
 * The session keeps the whole conversation; each turn appends only what is new.
 * Ctrl-C stops the answer, and at the prompt it ends the program.
 */

import { argv, exit, stdin, stdout } from "node:process";
import { createInterface } from "node:readline";

import { Client, KakeyaError, type Session } from "@kakeya/runtime";
import { textCodec, type ChatMessage, type TextCodec } from "@kakeya/runtime/text";

const ANSWER_TOKENS = 256;

/** A conversation that lives in a session. */
class Chat {
  readonly #messages: ChatMessage[] = [];
  // The text of what the session holds.
  #held = "";

  constructor(
    readonly session: Session,
    readonly codec: TextCodec,
  ) {}

  /** Appends the user's words, and gives the answer as it comes. */
  async *say(content: string, signal: AbortSignal): AsyncGenerator<string> {
    this.#messages.push({ role: "user", content });
    await this.#append(this.codec.renderChat(this.#messages), signal);
    const text = this.codec.detokenizer({ skipSpecialTokens: true });
    const start = this.session.historyLength;
    try {
      for await (const tokens of this.session.generate({ maxTokens: ANSWER_TOKENS, signal })) {
        yield text.push(tokens.tokenIds);
      }
      yield text.flush();
    } finally {
      const ids = this.session.history.slice(start);
      this.#held += this.codec.decode(ids);
      const answer = this.codec.decode(ids, { skipSpecialTokens: true });
      this.#messages.push({ role: "assistant", content: answer });
    }
  }

  async #append(text: string, signal: AbortSignal): Promise<void> {
    if (!text.startsWith(this.#held)) {
      // Some templates leave out what was said before, such as reasoning.
      await this.session.rewind(0, { signal });
      this.#held = "";
    }
    await this.session.append(this.codec.encode(text.slice(this.#held.length)), { signal });
    this.#held = text;
  }
}

async function main(address: string, model: string): Promise<void> {
  await using client = new Client(address);
  const codec = await textCodec(client, model);
  await using session = await client.createSession(model, {
    clientLabel: "chat example",
    stopTokenIds: codec.stopTokenIds,
    resume: true,
  });
  const chat = new Chat(session, codec);
  const lines = createInterface({ input: stdin, output: stdout, prompt: "> " });
  let answering: AbortController | undefined;
  let more = true;
  lines.on("SIGINT", () => (answering ? answering.abort() : lines.close()));
  lines.on("close", () => (more = false));
  lines.prompt();
  for await (const line of lines) {
    answering = new AbortController();
    const { signal } = answering;
    try {
      for await (const piece of chat.say(line, signal)) {
        stdout.write(piece);
      }
    } catch (error) {
      if (!signal.aborted) {
        throw error;
      }
    }
    answering = undefined;
    const moved = session.resumptions.at(-1);
    stdout.write(`\n[${session.historyLength} tokens${moved ? `, at ${moved.toAddress}` : ""}]\n`);
    if (more) {
      lines.prompt();
    }
  }
}

const [address, model = "tiny"] = argv.slice(2);
if (address === undefined) {
  console.error("usage: chat HOST:PORT [MODEL]");
  exit(2);
}
try {
  await main(address, model);
} catch (error) {
  if (!(error instanceof KakeyaError)) {
    throw error;
  }
  console.error(`${error.reason}: ${error.message}`);
  exit(1);
}
