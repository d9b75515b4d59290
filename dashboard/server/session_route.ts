import { Fields } from "./http/fields";
import type { NodeClient } from "./node_client";

/** Ends the session that a request names on its node. Throws Refused and what the SDK throws. */
export async function endSession(
  body: Record<string, unknown>,
  client: NodeClient,
  signal: AbortSignal,
): Promise<void> {
  const fields = new Fields(body);
  const sessionId = fields.text("sessionId", 128);
  const asked = client(fields.text("nodeId", 64));
  try {
    await asked.closeSession(sessionId, { signal });
  } finally {
    await asked.close();
  }
}
