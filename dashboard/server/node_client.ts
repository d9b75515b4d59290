import type { Client } from "@kakeya/runtime";

/** A client of the node with that id. Throws Refused for one that is not there. */
export type NodeClient = (nodeId: string) => Client;
