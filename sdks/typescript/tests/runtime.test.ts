/** Tests run on the runtime that their script names. */

import { expect, test } from "vitest";

test("`test:bun` runs on Bun, `test` on Node", () => {
  const script = process.env["npm_lifecycle_event"];
  if (script !== undefined) {
    expect(process.versions["bun"] !== undefined).toBe(script === "test:bun");
  }
});
