/**
 * The dashboard's process: watches the fleet and serves the page.
 *
 * Prints a JSON line, {"event": "ready", "url"}, once it serves, and from then on
 * {"event": "watching", "node"} or {"event": "waiting", "for"} whenever that changes;
 * or {"event": "failed", "reason", "message"}, and ends with 2 for a command line that
 * it does not understand, 1 otherwise. SIGINT and SIGTERM end it with 0. With
 * --end-with-input it heeds its standard input: see `heed`. Without --node it takes
 * the nodes that are named there; with --wait-for-access it asks none before it was told there
 * as whom.
 */

import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import type { GatewayView } from "../shared/messages";
import { Access } from "./access";
import { Pulls, removeModel } from "./models/disks";
import { Fit } from "./models/fit";
import { Rights } from "./models/rights";
import { load, unload } from "./models/serving";
import { storedModels } from "./models/stored";
import { Logs } from "./logs/logs";
import type { NodeClient } from "./node_client";
import { endSession } from "./session_route";
import { HttpServer } from "./http/server";
import { Fields } from "./http/fields";
import { Files } from "./http/files";
import { Pages } from "./http/pages";
import { optionsOf, UsageProblem, type Options } from "./options";
import { heed, type Listener } from "./parent";
import { planFor } from "./plan_route";
import { problemOf, Refused } from "./problem";
import { Chats } from "./chat/chats";
import { FleetState } from "./state/fleet_state";
import { Outbox } from "./state/outbox";
import { FleetWatch } from "./watch/fleet_watch";

/** What was said to be waited for last; empty while the fleet is watched. */
let waitedFor = "";

/** What a session of a chat, and the streams of nodes, have time to end in. */
const LEAVE_MS = 5000;

/** Between two looks for nodes that left. */
const FORGET_MS = 1000;

const PAGE_FOLDER = fileURLToPath(new URL("../page", import.meta.url));

async function serve(options: Options): Promise<void> {
  const files = new Files(options.page);
  const outbox = new Outbox((messages) => pages.send(messages));
  const state = new FleetState(
    (message) => {
      outbox.put(message);
      if (message.type === "gateway") sayGateway(message.gateway);
    },
    () => Date.now(),
  );
  const pages: Pages = new Pages(
    () => state.message(),
    () => outbox.flush(),
  );
  const access = new Access();
  const watch = new FleetWatch(options.node, state, access);
  const gateway = (): string => {
    if (watch.gateway !== "") return watch.gateway;
    const words = "The dashboard waits for a node of this machine.";
    throw new Refused(503, "NO_NODE", words);
  };
  const chats = new Chats({
    client: () => access.client(gateway()),
    nodeAt: (address) => state.nodeAt(address),
  });
  const logs = new Logs((address) => state.nodeAt(address));
  const rights = new Rights(access);
  const fit = new Fit(options.fleetCommand);
  const nodeClient: NodeClient = (nodeId) => {
    const address = state.addressOf(nodeId);
    if (address !== "") return access.client(address);
    throw new Refused(404, "NODE_NOT_FOUND", "No node of this fleet answers by that id now.");
  };
  const pulls = new Pulls(nodeClient, (nodeId, transferId, pull) =>
    state.pull(nodeId, transferId, pull),
  );
  const server = new HttpServer({
    files,
    pages,
    plan: (body, signal) => planFor(body, access.client(gateway()), signal),
    generate: (body, signal) => chats.generate(body, signal),
    logs: (body, signal) => logs.follow(body, signal),
    close: (body) => chats.close(new Fields(body).text("sessionKey", 64)),
    end: (body, signal) => endSession(body, nodeClient, signal),
    rights: () => rights.ask(state.living()),
    load: (body, signal) => load(body, nodeClient, signal),
    unload: (body, signal) => unload(body, nodeClient, signal),
    fit: (body, signal) => fit.ask(body, gateway(), signal),
    stored: () => storedModels(access, state.living(), (nodeId) => state.clockOffset(nodeId)),
    pull: (body) => pulls.begin(body),
    remove: (body, signal) => removeModel(body, nodeClient, signal),
  });
  setInterval(() => state.forgetLeft(), FORGET_MS).unref();
  const url = await server.listen(options.host, options.port, options.orAnyPort);
  say({ event: "ready", url });
  const told = toldToEnd(options.endWithInput, {
    nodes: (addresses) => (watch.localNodes = addresses),
    logs: (files) => logs.tell(files),
    access: (line) => access.tell(line),
  });

  const begun = options.waitForAccess ? access.known : Promise.resolve();
  await Promise.race([told, begun.then(() => watch.run())]);
  const ended = chats.end().then(() => Promise.all([watch.end(), server.end()]));
  // Nodes that do not answer any more hold up nobody who leaves.
  await Promise.race([ended, pause(LEAVE_MS)]);
}

/** Settles when the process is told to end; `hearing` is told of all else before. */
function toldToEnd(endWithInput: boolean, hearing: Omit<Listener, "ended">): Promise<void> {
  return new Promise((resolve) => {
    process.once("SIGINT", () => resolve());
    process.once("SIGTERM", () => resolve());
    if (endWithInput) heed(process.stdin, { ...hearing, ended: resolve });
  });
}

/** Says it once nodes were asked; another reason for the same wait is not said again. */
function sayGateway({ address, waitingFor, fault }: GatewayView): void {
  if (waitingFor !== "" && (fault === "" || waitingFor === waitedFor)) return;
  waitedFor = waitingFor;
  say(
    waitingFor === ""
      ? { event: "watching", node: address }
      : { event: "waiting", for: waitingFor },
  );
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
