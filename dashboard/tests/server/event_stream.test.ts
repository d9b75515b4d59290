import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { setTimeout as passed } from "node:timers/promises";

import { expect, test } from "vitest";

import { beginEvents, keepAlive } from "../../server/http/event_stream";

const MORE_THAN_BUFFERS_TAKE = 64 << 20;

test("an answer that was ended, and is not read, gets no sign of life", async () => {
  const errors: string[] = [];
  const server = createServer((request, response) => {
    response.on("error", (error) => errors.push(error.message));
    beginEvents(request, response);
    keepAlive(response, 1);
    response.end("x".repeat(MORE_THAN_BUFFERS_TAKE));
    server.emit("ended", response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1").pause();
  client.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  const [response] = (await once(server, "ended")) as [ServerResponse];
  await passed(50);
  expect(response.closed).toBe(false);
  expect(errors).toEqual([]);
  client.destroy();
  server.closeAllConnections();
  server.close();
});
