/**
 * An agent that holds one session for many turns: `node agent-loop.js HOST:PORT [MODEL] [TURNS]`.
 *
 * Each turn appends an observation and generates an action. The history grows;
 * what the verifier keeps of it does not, past the window: the bytes of keys and
 * values and the time of a turn stay what they are. (The model "tiny" knows 2,048
 * positions, enough for a hundred turns of this length.)
 */

import { argv, exit } from "node:process";

import { Client, KakeyaError } from "@kakeya/runtime";
import { textCodec } from "@kakeya/runtime/text";

const ACTION_TOKENS = 8;
const WINDOW_TOKENS = 128;

/** What the agent's tools answer in a turn. */
function observation(turn: number): string {
  return `\n# ${turn % 3} tests fail\n`;
}

async function main(address: string, model: string, turns: number): Promise<void> {
  await using client = new Client(address);
  const codec = await textCodec(client, model);
  await using session = await client.createSession(model, {
    clientLabel: "agent loop example",
    windowTokens: WINDOW_TOKENS,
    resume: true,
  });
  console.log("turn  milliseconds  history  K/V bytes");
  for (let turn = 1; turn <= turns; turn += 1) {
    const started = performance.now();
    await session.append(codec.encode(observation(turn)));
    const { tokenIds } = await session.generate({ maxTokens: ACTION_TOKENS }).completion();
    // Here an agent acts on the text of its answer.
    codec.decode(tokenIds);
    const milliseconds = performance.now() - started;
    const { historyLength, kvBytes } = await session.info();
    const columns = [
      String(turn).padStart(4),
      milliseconds.toFixed(0).padStart(12),
      String(historyLength).padStart(7),
      String(kvBytes).padStart(9),
    ];
    console.log(columns.join("  "));
  }
}

const [address, model = "tiny", turns = "100"] = argv.slice(2);
if (address === undefined) {
  console.error("usage: agent-loop HOST:PORT [MODEL] [TURNS]");
  exit(2);
}
try {
  await main(address, model, Number(turns));
} catch (error) {
  if (!(error instanceof KakeyaError)) {
    throw error;
  }
  console.error(`${error.reason}: ${error.message}`);
  exit(1);
}
