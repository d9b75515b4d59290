/**
 * A chat in the terminal, over one session: `node chat.js HOST:PORT [MODEL]`.
 *
 * Without MODEL, with the one that the fleet verifies. The session keeps the whole
 * conversation; each turn appends only what is new.
 * Ctrl-C stops the answer, and at the prompt it ends the program.
 */

import { argv, exit, stdin, stdout } from "node:process";
import { createInterface } from "node:readline";

import { Client, KakeyaError } from "@kakeya/runtime";

const ANSWER_TOKENS = 256;

async function main(address: string, model: string | undefined): Promise<void> {
  await using client = new Client(address);
  const options = { clientLabel: "chat example", maxTokens: ANSWER_TOKENS };
  await using chat = await (model === undefined
    ? client.chat(options)
    : client.chat(model, options));
  const { session } = chat;
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
      for await (const piece of chat.say(line, { signal })) {
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

const [address, model] = argv.slice(2);
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
