/**
 * A fleet that is not there: N nodes that speak the contract on loopback.
 *
 * Prints one JSON line, {"event": "ready", "address", "nodes"}, and obeys JSON
 * lines on its standard input, each answered by one:
 * {"silence": NAME}, {"revive": NAME}: a node dies, and comes back.
 * {"tell": NAME, "message": TEXT}: an event of that node.
 * {"move": NAME}: its ring links are demoted, or promoted again.
 * {"report": true}: how many sessions each node has.
 * Ends when its standard input ends.
 */

import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

import { SyntheticFleet } from "./fleet";
import { NodeServer } from "./service";
import { servedText } from "./text";

const { values } = parseArgs({
  options: {
    nodes: { type: "string", default: "12" },
    seed: { type: "string", default: "1" },
    quiet: { type: "boolean", default: false },
    "model-folder": { type: "string", default: "engine/shipped/tiny" },
  },
});

const fleet = new SyntheticFleet(Number(values.nodes), Number(values.seed), !values.quiet);
const text = await servedText(values["model-folder"]);
const servers = new Map<string, NodeServer>();
for (const { node } of fleet.members) {
  const server = new NodeServer(fleet, node, text);
  await server.listen();
  servers.set(node.machine.name, server);
}
fleet.begin();
say({
  event: "ready",
  seed: Number(values.seed),
  address: fleet.members[0]?.node.address,
  nodes: fleet.members.map(({ node }) => ({
    name: node.machine.name,
    nodeId: node.machine.nodeId,
    address: node.address,
  })),
});

for await (const line of createInterface({ input: process.stdin })) {
  if (line.trim() !== "") await obey(JSON.parse(line) as Command);
}
fleet.end();
for (const server of servers.values()) server.silence();
// A watch that is cut off while it waits to send on never ends: its deadline, a day, is not waited for.
process.exit(0);

interface Command {
  silence?: string;
  revive?: string;
  tell?: string;
  message?: string;
  move?: string;
  report?: boolean;
}

async function obey(command: Command): Promise<void> {
  const name = command.silence ?? command.revive ?? command.tell ?? command.move ?? "";
  const member = fleet.find(name);
  const server = servers.get(name);
  const at = Date.now();
  if (command.report) {
    const sessions = fleet.members.map(({ node }) => [node.machine.name, node.sessions.size]);
    say({ event: "report", sessions: Object.fromEntries(sessions) as Record<string, number> });
    return;
  }
  if (member === undefined || server === undefined) {
    say({ event: "refused", reason: `There is no node ${name}.` });
    return;
  }
  if (command.silence !== undefined) {
    server.silence();
    fleet.noticeDeath(member);
  } else if (command.revive !== undefined) {
    await server.listen();
    fleet.noticeReturn(member);
  } else if (command.tell !== undefined) {
    member.node.event({ kind: "TOLD", message: command.message ?? "" });
  } else {
    member.node.moveLinks(!member.node.ringUp);
  }
  say({ event: "done", at });
}

function say(line: Record<string, unknown>): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
