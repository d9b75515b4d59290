import { Code, ConnectError } from "@connectrpc/connect";

import { ErrorInfoSchema } from "./contract";

/** An error with its name, as nodes give it. */
export function refusal(code: Code, reason: string, problem: string, mend = ""): ConnectError {
  const value = { reason, domain: "kakeya", metadata: mend === "" ? {} : { mend } };
  return new ConnectError(problem, code, undefined, [{ desc: ErrorInfoSchema, value }]);
}
