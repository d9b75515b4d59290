/**
 * The dashboard's process: watches the fleet and serves the page.
 *
 * Prints one JSON line, {"event": "ready", "url"}, once it serves, or
 * {"event": "failed", "reason", "message"} and ends with 2 for a command line that
 * it does not understand, 1 otherwise. SIGINT and SIGTERM end it with 0.
 */

import { fileURLToPath } from "node:url";

import { HttpServer } from "./http/server";
import { Fields } from "./http/fields";
import { Files } from "./http/files";
import { Pages } from "./http/pages";
import { optionsOf, UsageProblem, type Options } from "./options";
import { planFor } from "./plan_route";
import { problemOf } from "./problem";
import { Playground } from "./playground/playground";
import { FleetState } from "./state/fleet_state";
import { Outbox } from "./state/outbox";
import { FleetWatch } from "./watch/fleet_watch";

const PAGE_FOLDER = fileURLToPath(new URL("../page", import.meta.url));

async function serve(options: Options): Promise<void> {
  const files = new Files(options.page);
  const outbox = new Outbox((messages) => pages.send(messages));
  const state = new FleetState(
    options.node,
    (message) => outbox.put(message),
    () => Date.now(),
  );
  const pages: Pages = new Pages(
    () => state.message(),
    () => outbox.flush(),
  );
  const watch = new FleetWatch(options.node, state);
  const playground = new Playground({
    gateway: () => watch.gateway,
    nodeAt: (address) => state.nodeAt(address),
  });
  const server = new HttpServer({
    files,
    pages,
    plan: (body, signal) => planFor(body, watch.gateway, signal),
    generate: (body, signal) => playground.generate(body, signal),
    close: (body) => playground.close(new Fields(body).text("sessionKey", 64)),
  });
  const url = await server.listen(options.host, options.port);
  const watching = watch.run();
  say({ event: "ready", url });

  await ending(options.endWithInput, watching);
  await playground.end();
  await Promise.all([watch.end(), server.end()]);
}

/** Settles when the process is told to end; rejects when watching the fleet fails. */
async function ending(endWithInput: boolean, watching: Promise<void>): Promise<void> {
  const told = new Promise<void>((resolve) => {
    process.once("SIGINT", () => resolve());
    process.once("SIGTERM", () => resolve());
    if (endWithInput) process.stdin.resume().once("close", () => resolve());
  });
  await Promise.race([told, watching]);
}

function say(line: Record<string, unknown>): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

try {
  await serve(optionsOf(process.argv.slice(2), PAGE_FOLDER));
  process.exit(0);
} catch (error) {
  const usage = error instanceof UsageProblem;
  const message = error instanceof Error ? error.message : String(error);
  const reason = usage ? "USAGE" : (problemOf(error)?.problem.reason ?? "FAILED");
  say({ event: "failed", reason, message });
  if (reason === "FAILED")
    process.stderr.write(`${error instanceof Error ? error.stack : message}\n`);
  process.exit(usage ? 2 : 1);
}
