import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { Child } from "./child";

const DASHBOARD = fileURLToPath(new URL("../..", import.meta.url));
const TINY = fileURLToPath(new URL("../../../engine/shipped/tiny", import.meta.url));

export interface SyntheticNodes {
  child: Child;
  /** host:port of the first node. */
  address: string;
  nodes: { name: string; nodeId: string; address: string }[];
}

/** A synthetic fleet; `quiet` does nothing by itself. */
export async function synthetic(nodes: number, ...words: string[]): Promise<SyntheticNodes> {
  const child = new Child(process.execPath, [
    built("synthetic/main.mjs"),
    ...["--nodes", String(nodes), "--model-folder", TINY],
    ...words,
  ]);
  const ready = await child.line("ready");
  return {
    child,
    address: String(ready["address"]),
    nodes: ready["nodes"] as SyntheticNodes["nodes"],
  };
}

export interface Dashboard {
  child: Child;
  /** With a slash at its end. */
  url: string;
}

/** The dashboard's process on the fleet of the node at `address`; empty for what it is told of. */
export async function dashboard(address: string, ...words: string[]): Promise<Dashboard> {
  const child = new Child(process.execPath, [
    built("server/main.mjs"),
    ...["--end-with-input", "--node", address],
    ...words,
  ]);
  const ready = await child.line("ready");
  return { child, url: String(ready["url"]) };
}

function built(name: string): string {
  const path = `${DASHBOARD}/dist/${name}`;
  if (!existsSync(path)) throw new Error(`${path} is not built: make dashboard`);
  return path;
}
