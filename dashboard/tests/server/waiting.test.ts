/** A dashboard that was started before its node, and one whose node moves. */

import { afterEach, expect, test } from "vitest";

import type { Child } from "../process/child";
import { dashboard, synthetic, type SyntheticNodes } from "../process/dashboard";
import { Follower } from "../process/follower";
import { until } from "../process/until";

const children: Child[] = [];

afterEach(async () => {
  await Promise.all(children.splice(0).map((child) => child.end()));
});

async function node(): Promise<SyntheticNodes> {
  const started = await synthetic(1, "--quiet");
  children.push(started.child);
  return started;
}

function idOf({ nodes }: SyntheticNodes): string {
  return nodes[0]?.nodeId ?? "";
}

test("a node that comes later is found, and again on the port that it comes back on", async () => {
  const board = await dashboard("");
  children.push(board.child);
  expect((await board.child.line("waiting"))["for"]).toBe("a node of this machine");
  const follower = new Follower();
  await follower.open(board.url);
  const before = await until(() => follower.fleet, "the empty fleet");
  expect(before).toMatchObject({ nodes: [], gateway: { fault: "No node runs on this machine." } });
  const refused = await fetch(`${board.url}plan`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: "{}",
  });
  expect(await refused.json()).toMatchObject({ reason: "NO_NODE", mend: "Start one: fleet join" });

  const first = await node();
  board.child.tell({ nodes: [first.address] });
  expect((await board.child.line("watching"))["node"]).toBe(first.address);
  // On a busy machine a stream may break meanwhile, and is opened again.
  await until(() => follower.heardAt(idOf(first)) > 0, "the node's own word");

  await first.child.end();
  board.child.tell({ nodes: [] });
  expect((await board.child.line("waiting"))["for"]).toBe("a node of the fleet “synthetic”");
  const again = await node();
  const since = Date.now();
  board.child.tell({ nodes: [again.address] });
  expect((await board.child.line("watching"))["node"]).toBe(again.address);
  await until(() => follower.heardAt(idOf(again)) > since, "the node's own word at its new port");
  follower.close();
});

test("a node that is named is waited for by its address", async () => {
  const late = await node();
  late.child.tell({ silence: late.nodes[0]?.name });
  await late.child.line("done");
  const board = await dashboard(late.address);
  children.push(board.child);
  expect((await board.child.line("waiting"))["for"]).toBe(`a node at ${late.address}`);
  late.child.tell({ revive: late.nodes[0]?.name });
  expect((await board.child.line("watching"))["node"]).toBe(late.address);
});
