/**
 * How fast this runtime reads a stream: prints {"seconds", "first_seconds"} for one
 * generation. `stream_rate.mjs HOST:PORT BLOCK_SIZE TOKENS`, by scripts/bench/typescript.py.
 */

import { Client } from "@kakeya/runtime";

const [address, model, count] = process.argv.slice(2);
const client = new Client(address);
const session = await client.createSession(model);
await session.append([1]);

/** Reads a generation; seconds to its first tokens, and to its end. */
async function read(maxTokens) {
  const started = performance.now();
  let first = 0;
  let seen = 0;
  for await (const tokens of session.generate({ maxTokens })) {
    first ||= performance.now() - started;
    seen += tokens.tokenIds.length;
  }
  if (seen !== maxTokens) {
    throw new Error(`${seen} of ${maxTokens} tokens arrived`);
  }
  return { seconds: (performance.now() - started) / 1000, first_seconds: first / 1000 };
}

// The first messages are read before the runtime has compiled anything.
await read(2000 * Number(model));
console.log(JSON.stringify(await read(Number(count))));
await session.close();
await client.close();
