import type { IncomingMessage } from "node:http";

import { LIMITS } from "../../shared/limits";
import { Refused } from "../problem";

/** The request's JSON object. Throws Refused for what is none, or is larger than a mebibyte. */
export async function jsonBody(request: IncomingMessage): Promise<Record<string, unknown>> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > LIMITS.bodyBytes)
      throw new Refused(413, "BODY_TOO_LARGE", "The request is larger than 1 MiB.");
    chunks.push(chunk);
  }
  let value: unknown;
  try {
    value = JSON.parse(Buffer.concat(chunks).toString("utf8"));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new Refused(400, "BAD_REQUEST", "The request is not JSON.");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Refused(400, "BAD_REQUEST", "The request is no JSON object.");
  }
  return value as Record<string, unknown>;
}
