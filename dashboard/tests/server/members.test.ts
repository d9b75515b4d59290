/** The dashboard of a fleet with an authority: it calls nodes by what its parent hands it. */

import { execFileSync } from "node:child_process";
import { connect, type AddressInfo } from "node:net";
import { createServer, type Server } from "node:tls";
import { fileURLToPath } from "node:url";

import { afterEach, beforeAll, expect, test } from "vitest";

import type { Child } from "../process/child";
import { dashboard, synthetic } from "../process/dashboard";
import { Follower } from "../process/follower";
import { until } from "../process/until";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const MEMBERS = `
import json, pathlib, tempfile, time
from kakeya_fleet.node.trust.certificates import name_of_node
from kakeya_fleet.node.trust.tls import authorities_pem
from tests.support.trusted_nodes import member_of, old_fleet_of

def told(trust):
    pair = trust.member
    return {"certificate": pair.certificate_pem.decode(), "key": pair.key_pem.decode()}

with tempfile.TemporaryDirectory() as folder:
    home = pathlib.Path(folder, "home")
    one, two = old_fleet_of(home, 2)
    print(json.dumps({
        "ca": authorities_pem(one).decode(),
        "ownerName": name_of_node(one.node_id),
        "one": told(one),
        "two": told(two),
        "ended": told(member_of(one, home, "2", lambda: time.time() - 8 * 86400)),
    }))
`;

interface Pair {
  certificate: string;
  key: string;
}

let made: { ca: string; ownerName: string; one: Pair; two: Pair; ended: Pair };
const children: Child[] = [];
const servers: Server[] = [];

beforeAll(() => {
  const python = `${ROOT}.venv/bin/python`;
  made = JSON.parse(
    execFileSync(python, ["-c", MEMBERS], { encoding: "utf8", cwd: ROOT }),
  ) as typeof made;
});

afterEach(async () => {
  await Promise.all(children.splice(0).map((child) => child.end()));
  for (const server of servers.splice(0)) server.close();
});

/** What members alone pass on their way to the node at `inner`; `strangers` counts the others. */
async function guarded(inner: string): Promise<{ address: string; strangers: () => number }> {
  let strangers = 0;
  const server = createServer(
    {
      cert: made.one.certificate,
      key: made.one.key,
      ca: made.ca,
      requestCert: true,
      rejectUnauthorized: true,
      minVersion: "TLSv1.3",
      ALPNProtocols: ["h2"],
    },
    (socket) => {
      const [host = "", port = ""] = inner.split(":");
      const beyond = connect(Number(port), host);
      socket.pipe(beyond).pipe(socket);
      for (const [side, other] of [
        [socket, beyond],
        [beyond, socket],
      ] as const) {
        side.on("error", () => other.destroy());
        side.on("close", () => other.destroy());
      }
    },
  );
  server.on("tlsClientError", () => (strangers += 1));
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { address, strangers: () => strangers };
}

function access(address: string, pair: Pair, isHere: boolean): Record<string, unknown> {
  const node = { membership: "home", ownerKey: "sesame", ownerName: made.ownerName };
  return {
    memberships: { home: { ca: made.ca, ...pair, serverName: "member.kakeya" } },
    nodes: isHere ? { [address]: node } : {},
    named: isHere ? "" : "home",
  };
}

async function board(address: string): Promise<{ child: Child; follower: Follower }> {
  const started = await dashboard(address, "--wait-for-access");
  children.push(started.child);
  const follower = new Follower();
  await follower.open(started.url);
  return { child: started.child, follower };
}

test("a node of this machine is called as its owner, and never before that is known", async () => {
  const fleet = await synthetic(1, "--quiet");
  children.push(fleet.child);
  const node = await guarded(fleet.address);
  const { child, follower } = await board("");
  child.tell({ nodes: [node.address] });
  child.tell({ access: access(node.address, made.one, true) });
  expect((await child.line("watching"))["node"]).toBe(node.address);
  await until(() => follower.heardAt(fleet.nodes[0]?.nodeId ?? "") > 0, "the node's own word");
  expect(node.strangers()).toBe(0);
  follower.close();
});

test("a certificate that ended is named, and a renewed one is taken without a restart", async () => {
  const fleet = await synthetic(1, "--quiet");
  children.push(fleet.child);
  const node = await guarded(fleet.address);
  const { child, follower } = await board(node.address);
  child.tell({ access: access(node.address, made.ended, false) });
  expect((await child.line("waiting"))["for"]).toBe(`a node at ${node.address}`);
  const isNamed = () =>
    follower.messages.some(
      (message) =>
        message.type === "gateway" && message.gateway.fault.includes("certificate ended at"),
    );
  await until(isNamed, "the fault");
  child.tell({ access: access(node.address, made.two, false) });
  expect((await child.line("watching"))["node"]).toBe(node.address);
  follower.close();
});
