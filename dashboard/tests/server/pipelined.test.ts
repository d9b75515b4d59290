import { once } from "node:events";
import { connect } from "node:net";

import { expect, test } from "vitest";

import type { Files } from "../../server/http/files";
import { Pages } from "../../server/http/pages";
import { HttpServer } from "../../server/http/server";
import { until } from "../process/until";
import { fleetView } from "../views";

test("pages that wait behind another of their connection leave with it", async () => {
  const pages = new Pages(
    () => ({ type: "fleet", fleet: fleetView(["a"]), now: 1 }),
    () => undefined,
  );
  const never = (): never => {
    throw new Error("not asked for");
  };
  const server = new HttpServer({
    files: {} as Files,
    pages,
    plan: never,
    generate: never,
    logs: never,
    close: never,
    end: never,
    rights: never,
    load: never,
    unload: never,
    fit: never,
    stored: never,
    pull: never,
    remove: never,
  });
  const { host, hostname, port } = new URL(await server.listen("127.0.0.1", 0));
  const socket = connect(Number(port), hostname);
  await once(socket, "connect");
  socket.write(`GET /events HTTP/1.1\r\nHost: ${host}\r\n\r\n`.repeat(3));
  await until(() => pages.count === 3, "three pages");
  socket.destroy();
  await until(() => pages.count === 0, "their end");
  expect(pages.count).toBe(0);
  await server.end();
});
