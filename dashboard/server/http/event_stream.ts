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

/** Sends signs of life until the stream ends, or its reader leaves. */
export function keepAlive(response: ServerResponse, every = KEEP_ALIVE_MS): void {
  const timer = setInterval(() => {
    // An answer that was ended closes once its reader has read it: it may be long, or never.
    if (response.writableEnded || response.destroyed) clearInterval(timer);
    // Behind a reader that does not read there is nothing to keep alive.
    else if (!response.writableNeedDrain) response.write("event: alive\ndata: \n\n");
  }, every);
  response.once("close", () => clearInterval(timer));
}
