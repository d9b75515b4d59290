/**
 * One question to a chat model: `node ask.js HOST:PORT MODEL FAMILY [QUESTION]`.
 *
 * Families are those of `chat-families.ts`; NO_THINKING=1 keeps them from thinking.
 */

import { argv, env, exit, stdout } from "node:process";

import { Client, KakeyaError } from "@kakeya/runtime";
import { fromOpenAIMessages, textCodec, type TextCodec } from "@kakeya/runtime/text";

import { PLAIN, THINKING } from "./chat-families.js";

function tokensFor(codec: TextCodec, family: string, question: string): number[] {
  const messages = fromOpenAIMessages([
    { role: "developer", content: "Answer in one sentence." },
    { role: "user", content: [{ type: "text", text: question }] },
  ]);
  const thinking = THINKING[family];
  const plain = PLAIN[family];
  if (thinking !== undefined) {
    return thinking(codec, messages, { thinking: !env["NO_THINKING"] });
  }
  if (plain !== undefined) {
    return plain(codec, messages);
  }
  console.error(`families are ${[...Object.keys(THINKING), ...Object.keys(PLAIN)].join(", ")}`);
  return exit(2);
}

async function main(address: string, model: string, family: string, question: string) {
  await using client = new Client(address);
  const codec = await textCodec(client, model);
  await using session = await client.createSession(model, {
    tokens: tokensFor(codec, family, question),
    stopTokenIds: codec.stopTokenIds,
    clientLabel: "ask example",
  });
  const text = codec.detokenizer({ skipSpecialTokens: true });
  for await (const { tokenIds } of session.generate({ maxTokens: 256 })) {
    stdout.write(text.push(tokenIds));
  }
  console.log(text.flush());
}

const [address, model, family, question = "What is a Kakeya set?"] = argv.slice(2);
if (address === undefined || model === undefined || family === undefined) {
  console.error("usage: ask HOST:PORT MODEL FAMILY [QUESTION]");
  exit(2);
}
try {
  await main(address, model, family, question);
} catch (error) {
  if (!(error instanceof KakeyaError)) {
    throw error;
  }
  console.error(`${error.reason}: ${error.message}`);
  exit(1);
}
