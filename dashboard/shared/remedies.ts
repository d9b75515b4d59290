/**
 * What mends an error, in the words of the page, by its reason.
 * Made from proto/kakeya/v1/error_reason.proto by `make stubs`.
 */
export const REMEDIES: Readonly<Record<string, string>> = {
  DASHBOARD_UNREACHABLE: "See whether it runs, then ask again: fleet dashboard",
  NODE_DEAD:
    "See on its machine whether the agent runs, and start it again: fleet join. It joins by itself.",
  NODE_LEFT: "Start it again on its machine: fleet join",
  NO_CHAT_TEMPLATE: "Choose plain text.",
  NO_NODE: "Start one: fleet join",
  SESSION_NOT_FOUND: "Send it again: a new session is opened.",
  STREAM_ENDED: "Ask again.",
};
