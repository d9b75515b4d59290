import type { LoadAnswer, UnloadAnswer } from "../../shared/messages";
import { Fields } from "../http/fields";
import type { NodeClient } from "../node_client";

/** Longest name of a model, in characters, as a node takes it. */
const NAME_LIMIT = 1024;
const ROLES = ["verifier", "proposer"] as const;
/** Seconds that running generations get to end. */
const DRAIN_SECONDS = 5;

/**
 * Has a node serve a model (`LoadQuestion`), and answers once it has begun: its transfers tell
 * how it goes on. Throws Refused and what the SDK throws.
 */
export async function load(
  body: Record<string, unknown>,
  client: NodeClient,
  signal: AbortSignal,
): Promise<LoadAnswer> {
  const fields = new Fields(body);
  const model = fields.text("model", NAME_LIMIT);
  const role = fields.choice("role", ROLES);
  const asked = client(fields.text("nodeId", 64));
  try {
    const loading = asked.fleet.loadModel(model, { role, signal });
    // Who leaves a load leaves it alone.
    for await (const _ of loading) return { servedAs: "" };
    return { servedAs: loading.loaded?.offer.modelId ?? "" };
  } finally {
    await asked.close();
  }
}

/** Has a node serve a model no more (`UnloadQuestion`). Throws Refused and what the SDK throws. */
export async function unload(
  body: Record<string, unknown>,
  client: NodeClient,
  signal: AbortSignal,
): Promise<UnloadAnswer> {
  const fields = new Fields(body);
  const model = fields.text("model", NAME_LIMIT);
  const role = fields.choice("role", ROLES);
  const asked = client(fields.text("nodeId", 64));
  try {
    const options = { role, drainSeconds: DRAIN_SECONDS, signal };
    const { memoryFreeBytes } = await asked.fleet.unloadModel(model, options);
    return { memoryFreeBytes };
  } finally {
    await asked.close();
  }
}
