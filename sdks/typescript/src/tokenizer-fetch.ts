/** A model's tokenizer from the node that serves it. */

import type { Connection } from "./connection.js";
import { TokenizerMismatch } from "./errors.js";
import type { GetTokenizerResponse } from "./generated/kakeya/v1/runtime_pb.js";
import { MessageStream } from "./streams.js";
import { AnnouncedTokenizer, cacheFolder, type TokenizerFiles } from "./tokenizer-cache.js";

/** The files of a tokenizer, each checked against the SHA-256 that its node announced. */
export interface FetchedTokenizer {
  /** The tokenizer's digest, as cards have it. */
  readonly digest: string;
  /** Names the content of all files. */
  readonly key: string;
  readonly files: TokenizerFiles;
}

/**
 * The tokenizer of `model` as the node of `connection` serves it, from the cache
 * where that has it. Throws what the call throws, and TokenizerMismatch.
 */
export async function fetchTokenizer(
  connection: Connection,
  model: string,
  signal?: AbortSignal,
): Promise<FetchedTokenizer> {
  const { runtime, timeouts } = connection;
  const timeoutMs = Math.ceil(timeouts.generation * 1000);
  const stream = new MessageStream(
    connection,
    async (cancelled) => runtime.getTokenizer({ modelId: model }, { signal: cancelled, timeoutMs }),
    { firstTimeout: timeouts.unary, idleTimeout: timeouts.streamIdle, signal },
  );
  try {
    const first = await stream.read();
    if (first?.kind.case !== "header") {
      throw new TokenizerMismatch("the node sent no header: update the node");
    }
    const header = first.kind.value;
    const announced = new AnnouncedTokenizer(
      header.tokenizerDigest,
      header.files.map(({ name, byteCount, sha256 }) => ({
        name,
        byteCount: Number(byteCount),
        sha256,
      })),
    );
    const cache = cacheFolder();
    let files = await announced.read(cache);
    if (files === null) {
      files = announced.split(await readAll(stream, announced.byteCount));
      await announced.write(cache, files);
    }
    return { digest: announced.digest, key: announced.key, files };
  } finally {
    stream.leave();
  }
}

async function readAll(
  stream: MessageStream<GetTokenizerResponse>,
  byteCount: number,
): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  // A node that sends without end is left as soon as it sent too much.
  while (length <= byteCount) {
    const message = await stream.read();
    if (message === null) {
      break;
    }
    if (message.kind.case === "chunk") {
      chunks.push(message.kind.value);
      length += message.kind.value.length;
    }
  }
  return Buffer.concat(chunks);
}
