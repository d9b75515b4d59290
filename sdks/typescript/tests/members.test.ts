/** A fleet with an authority: certificates name members and no addresses, of nodes and clients. */

import { execFileSync } from "node:child_process";
import { createSecureServer, type Http2SecureServer } from "node:http2";
import type { AddressInfo } from "node:net";

import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";

import {
  CapabilityService,
  CreateSessionResponseSchema,
  GetNodeResponseSchema,
  RuntimeService,
} from "../src/contract.js";
import { ErrorInfoSchema } from "../src/generated/status_details_pb.js";
import { Client, NodeUnreachable, type TlsOptions } from "../src/index.js";
import { ROOT } from "./child.js";

// Two members made anew for each run, and a certificate that has ended.
const MEMBERS = `
import json, pathlib, tempfile, time
from kakeya_fleet.node.trust.certificates import name_of_node
from kakeya_fleet.node.trust.tls import authorities_pem
from tests.support.trusted_nodes import member_of, old_fleet_of

def told(pair):
    return {"certificate": pair.certificate_pem.decode(), "key": pair.key_pem.decode()}

with tempfile.TemporaryDirectory() as folder:
    one, two = old_fleet_of(pathlib.Path(folder, "home"), 2)
    ended = member_of(one, pathlib.Path(folder, "home"), "2", lambda: time.time() - 8 * 86400)
    print(json.dumps({
        "authority": authorities_pem(one).decode(),
        "name": name_of_node(one.node_id),
        "one": told(one.member),
        "two": told(two.member),
        "ended": told(ended.member),
    }))
`;

interface Pair {
  readonly certificate: string;
  readonly key: string;
}

interface TlsNode {
  readonly server: Http2SecureServer;
  readonly address: string;
  readonly authorizations: (string | null)[];
}

let made: { authority: string; name: string; one: Pair; two: Pair; ended: Pair };
let one: TlsNode;
let two: TlsNode;

/** A node that members alone can call, and that knows where the model is served. */
async function started(pair: Pair, elsewhere: () => string): Promise<TlsNode> {
  const authorizations: (string | null)[] = [];
  const handler = connectNodeAdapter({
    routes: (router) => {
      router.service(CapabilityService, {
        getNode: (_, context) => {
          authorizations.push(context.requestHeader.get("authorization"));
          return create(GetNodeResponseSchema, { metricsAddress: "encrypted" });
        },
      });
      router.service(RuntimeService, {
        createSession: (_, context) => {
          authorizations.push(context.requestHeader.get("authorization"));
          const address = elsewhere();
          if (address === "") {
            return create(CreateSessionResponseSchema, { sessionId: "s-1", model: {}, plan: {} });
          }
          const value = {
            reason: "MODEL_SERVED_ELSEWHERE",
            domain: "kakeya",
            metadata: { address },
          };
          const details = [{ desc: ErrorInfoSchema, value }];
          throw new ConnectError("elsewhere", Code.FailedPrecondition, undefined, details);
        },
      });
    },
  });
  const server = createSecureServer(
    {
      cert: pair.certificate,
      key: pair.key,
      ca: made.authority,
      requestCert: true,
      rejectUnauthorized: true,
      minVersion: "TLSv1.3",
    },
    handler,
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { server, address, authorizations };
}

beforeAll(async () => {
  const python = `${ROOT}.venv/bin/python`;
  made = JSON.parse(
    execFileSync(python, ["-c", MEMBERS], { encoding: "utf8", cwd: ROOT }),
  ) as typeof made;
  two = await started(made.two, () => "");
  one = await started(made.one, () => two.address);
});

beforeEach(() => [one, two].forEach((node) => node.authorizations.splice(0)));

afterAll(() => [one, two].forEach((node) => node.server.close()));

function tls(pair: Pair = made.two): TlsOptions {
  return { ca: made.authority, ...pair, serverName: "member.kakeya" };
}

const timeouts = { connect: 3, unary: 3 };

test("a redirect is followed with the same certificate, without the owner's key", async () => {
  const owner = { key: "sesame", serverName: made.name };
  await using client = new Client(one.address, { tls: tls(), owner, timeouts });
  const session = await client.createSession("tiny");
  expect(session.address).toBe(two.address);
  expect(one.authorizations).toEqual(["Bearer sesame"]);
  expect(two.authorizations).toEqual([null]);
});

test("an owner's key goes to no other member", async () => {
  const owner = { key: "sesame", serverName: made.name };
  await using client = new Client(two.address, { tls: tls(), owner, timeouts });
  await expect(client.fleet.node()).rejects.toThrow(NodeUnreachable);
  expect(two.authorizations).toEqual([]);
});

test("an ended certificate is named with its end, and a renewed one counts at once", async () => {
  let pair = made.ended;
  await using client = new Client(one.address, { tls: () => tls(pair), timeouts });
  await expect(client.fleet.node()).rejects.toThrow(
    /this client's certificate ended at \d{4}-.* UTC by this machine's clock.*set the clock/,
  );
  expect(one.authorizations).toEqual([]);
  pair = made.two;
  expect((await client.fleet.node()).metricsAddress).toBe("encrypted");
});

test("a certificate that the node takes for none is one of the causes", async () => {
  const stranger = { ...tls(), ca: made.two.certificate };
  await using client = new Client(one.address, { tls: stranger, timeouts });
  await expect(client.fleet.node()).rejects.toThrow(/takes the other's certificate for none/);
});
