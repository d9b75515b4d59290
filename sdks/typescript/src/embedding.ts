/** A text as one vector, from the node that serves the model. */

import type { Connection } from "./connection.js";
import { ContextExceeded } from "./errors.js";
import type { CallOptions } from "./fleet.js";
import type { TextVector } from "./generated/values.js";
import { textVector } from "./generated/wire.js";
import { traced } from "./place.js";
import { appendSeconds } from "./timeouts.js";

/** Ids in one request: at most 5 bytes each, so under the limit of 1 MiB. */
export const MAX_EMBED_TOKENS = 196_608;

/** How a text is embedded. */
export interface EmbedOptions extends CallOptions {
  /** Sent with the call (W3C Trace Context). */
  readonly traceparent?: string | undefined;
}

/**
 * The vector of a text of `model` as the node of `connection` serves it.
 *
 * Throws what the call throws, and ContextExceeded for more ids than one request takes.
 */
export async function embed(
  connection: Connection,
  model: string,
  tokenIds: readonly number[],
  traceparent: string,
  signal?: AbortSignal,
): Promise<TextVector> {
  const { runtime, timeouts } = connection;
  const count = tokenIds.length;
  if (count > MAX_EMBED_TOKENS) {
    throw new ContextExceeded(
      `${count} token ids are more than the ${MAX_EMBED_TOKENS} of one text; cut it`,
    );
  }
  const request = { modelId: model, tokenIds: [...tokenIds] };
  const response = await connection.unary(
    (terms) => runtime.embed(request, traced(terms, traceparent)),
    appendSeconds(timeouts, count),
    { idempotent: true, signal },
  );
  return textVector(response);
}
