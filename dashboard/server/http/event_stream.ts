import type { IncomingMessage, ServerResponse } from "node:http";

import { SAFE_HEADERS } from "./guard";

/** Milliseconds between signs of life on a stream that has nothing to tell. */
const KEEP_ALIVE_MS = 5000;

/** Begins server-sent events as the answer to `request`. */
export function beginEvents(request: IncomingMessage, response: ServerResponse): void {
  request.socket.setNoDelay(true);
  request.socket.setTimeout(0);
  response.writeHead(200, {
    ...SAFE_HEADERS,
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
  });
  response.flushHeaders();
}

/** One event of `value`. */
export function eventText(value: unknown): string {
  return `data: ${JSON.stringify(value)}\n\n`;
}

/** Sends signs of life until the stream closes. */
export function keepAlive(response: ServerResponse): void {
  const timer = setInterval(() => {
    // Behind a reader that does not read there is nothing to keep alive.
    if (!response.writableNeedDrain) response.write("event: alive\ndata: \n\n");
  }, KEEP_ALIVE_MS);
  response.once("close", () => clearInterval(timer));
}
