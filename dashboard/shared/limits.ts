// Written by scripts/write/stubs.py from node/admission/limits.py; do not edit.

/** What programs of this machine, pages and nodes may have of this process. */
export const LIMITS = {
  // A browser has six a page. When all are taken, the one that has asked nothing for the
  // longest time is closed for a new one.
  connections: 256,
  // That listen, each with what waits for it: an eighth of the connections.
  pages: 32,
  // Answered at once besides those: plans, answers of chats, loads.
  requests: 32,
  // Longest body of a request: a prompt of 250,000 words.
  bodyBytes: 1_048_576,
  // From a request's first byte to the end of its headers.
  headerSeconds: 10,
  // From a request's first byte to the end of its body.
  requestSeconds: 40,
  // That wait for a page besides the fleet that it began with: one that reads more slowly is
  // skipped, and told the whole fleet again.
  pageBytes: 1_048_576,
  // Logs of nodes of its machine that pages follow, a MiB of each's end.
  logs: 8,
  // Of chats on all pages; the one idle for the longest time makes room.
  sessions: 8,
  // Without a question, after which one is closed.
  sessionSeconds: 300,
  // The latest of all nodes, of half a KiB each.
  events: 512,
  // Downloads and loads of each node, the latest, as a node keeps.
  transfers: 64,
} as const;
