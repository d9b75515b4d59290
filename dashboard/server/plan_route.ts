import type { Client } from "@kakeya/runtime";

import type { PlanView } from "../shared/messages";
import { Fields } from "./http/fields";
import { askedStrategy, STRATEGIES } from "./http/strategy";
import { planView } from "./views/plan_view";

/** Answers a `PlanQuestion` by asking the node of `client`, which it closes. Throws Refused and what the SDK throws. */
export async function planFor(
  body: Record<string, unknown>,
  client: Client,
  signal: AbortSignal,
): Promise<PlanView> {
  const fields = new Fields(body);
  try {
    const plan = await client.fleet.plan({
      verifierModel: fields.text("verifierModel", 512),
      ...(fields.optionalText("proposerModel", 512) === ""
        ? {}
        : { proposerModel: fields.text("proposerModel", 512) }),
      contextTokens: fields.whole("contextTokens", 0, 2 ** 31),
      kvStrategy: askedStrategy(fields.choice("kvStrategy", STRATEGIES)),
      ...(fields.given("windowTokens")
        ? { windowTokens: fields.whole("windowTokens", 1, 2 ** 31) }
        : {}),
      signal,
    });
    return planView(plan);
  } finally {
    await client.close();
  }
}
