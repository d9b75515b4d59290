/** Whom a client calls besides its own node: members alone, where the fleet has an authority. */

import { expect, test } from "vitest";

import { forNode, nameOfNode, tlsOf } from "../dist/credentials.js";
import { ModelServedElsewhere, UsageError } from "../dist/errors.js";
import { Ways } from "../dist/ways.js";
import type { NodeStatus } from "../dist/values/watch.js";

const ca = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n";
const member = { certificate: ca, key: "key" };

function node(card: { certificate: string; applicationsPort: number }): NodeStatus {
  return { address: "10.0.0.2:7600", card } as unknown as NodeStatus;
}

function elsewhere(metadata: Record<string, string>): ModelServedElsewhere {
  return new ModelServedElsewhere("there", { metadata: { address: "10.0.0.2:7600", ...metadata } });
}

const MEMBER = node({ certificate: "aa", applicationsPort: 7601 });
const CLOSED = node({ certificate: "aa", applicationsPort: 0 });
const STRANGER = node({ certificate: "", applicationsPort: 0 });
const TOLD = { encrypted: "true", applications_address: "10.0.0.2:7601" };

test.each([
  ["in plain text", {}, ["10.0.0.2:7600", "", ""]],
  ["a key in plain text", { apiKey: "k" }, ["10.0.0.2:7600", "", ""]],
  ["a key by TLS", { apiKey: "k", tls: { ca } }, ["10.0.0.2:7600", "10.0.0.2:7601", ""]],
  [
    "a member that shows a key",
    { apiKey: "k", tls: { ca, ...member } },
    ["10.0.0.2:7600", "10.0.0.2:7600", "10.0.0.2:7600"],
  ],
])("%s", (_name, credentials, expected) => {
  const ways = new Ways(credentials);
  expect([STRANGER, MEMBER, CLOSED].map((each) => ways.to(each))).toEqual(expected);
  const named = [elsewhere({}), elsewhere(TOLD), elsewhere({ encrypted: "true" })];
  expect(named.map((each) => ways.namedBy(each))).toEqual(expected);
});

const NODE = "545ea538461003efdc8c81c244531b003f6f26cfccf6c0073b3239fdedf49446";
const NAME = "krpkkocgcab67xemqhbeiuy3aa7w6jwpzt3mabz3gi4733pusrda.node.kakeya";

test("a node that is named must show that it is it, and not any member", () => {
  expect(nameOfNode(NODE)).toBe(NAME);
  const awaited = (serverName?: string) => {
    const tls = () => ({ ca, serverName });
    return tlsOf(forNode({ apiKey: "k", tls }, NODE))?.serverName;
  };
  expect(awaited("member.kakeya")).toBe(NAME);
  // A name of the client's own choice stays, and none.
  expect(awaited("node.example")).toBe("node.example");
  expect(awaited()).toBeUndefined();
  expect(forNode({ apiKey: "k" }, NODE)).toEqual({ apiKey: "k" });
  const any = { apiKey: "k", tls: { ca, serverName: "member.kakeya" } };
  expect(forNode(any, "")).toBe(any);
  expect(() => forNode(any, "no id")).toThrow(UsageError);
});
