/** TLS: nodes are checked against an authority, and clients show their certificate. */

import { execFileSync } from "node:child_process";
import { createSecureServer, type Http2SecureServer } from "node:http2";
import type { AddressInfo } from "node:net";
import type { TLSSocket } from "node:tls";

import { create } from "@bufbuild/protobuf";
import { createContextKey, createContextValues } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { afterAll, beforeAll, expect, test } from "vitest";

import { CapabilityService, GetNodeResponseSchema } from "../src/contract.js";
import { Client, NodeUnreachable, type TlsOptions } from "../src/index.js";
import { ROOT } from "./child.js";

// An authority, and two certificates of it, made anew for each run.
const CERTIFICATES = `
import datetime, ipaddress, json
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

now = datetime.datetime.now(datetime.UTC)

def pem_of(key):
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()

def made(name, issuer, issuer_key, authority):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority:
        names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(issuer_key or key, hashes.SHA256())
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    return subject, key, {"certificate": pem, "key": pem_of(key)}

subject, key, authority = made("authority", None, None, True)
node = made("node.example", subject, key, False)[2]
client = made("client.example", subject, key, False)[2]
print(json.dumps({"authority": authority, "node": node, "client": client}))
`;

// Whether the caller showed a certificate of the authority.
const AUTHORIZED = createContextKey(false);

interface Pair {
  readonly certificate: string;
  readonly key: string;
}

let pairs: { authority: Pair; node: Pair; client: Pair };
let server: Http2SecureServer;
let address: string;
let seen: { authorization: string | null; authorized: boolean }[];

beforeAll(async () => {
  const made = execFileSync(`${ROOT}.venv/bin/python`, ["-c", CERTIFICATES], { encoding: "utf8" });
  pairs = JSON.parse(made) as typeof pairs;
  seen = [];
  const handler = connectNodeAdapter({
    routes: (router) =>
      router.service(CapabilityService, {
        getNode: (_, context) => {
          const authorization = context.requestHeader.get("authorization");
          seen.push({ authorization, authorized: context.values.get(AUTHORIZED) });
          return create(GetNodeResponseSchema, { metricsAddress: "encrypted" });
        },
      }),
    contextValues: (request) =>
      createContextValues().set(AUTHORIZED, (request.socket as TLSSocket).authorized),
  });
  server = createSecureServer(
    {
      cert: pairs.node.certificate,
      key: pairs.node.key,
      ca: pairs.authority.certificate,
      requestCert: true,
      rejectUnauthorized: false,
    },
    handler,
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterAll(() => server.close());

async function metricsAddress(tls: TlsOptions | undefined, apiKey?: string): Promise<string> {
  await using client = new Client(address, { tls, apiKey, timeouts: { connect: 3, unary: 3 } });
  return (await client.fleet.node()).metricsAddress;
}

test("a node of the authority is talked to, the key and the certificate arrive", async () => {
  const { certificate, key } = pairs.client;
  const tls = { ca: pairs.authority.certificate, certificate, key };
  expect(await metricsAddress(tls, "secret")).toBe("encrypted");
  expect(seen.at(-1)).toEqual({ authorization: "Bearer secret", authorized: true });
});

test("a client without a certificate shows none", async () => {
  const bytes = new TextEncoder().encode(pairs.authority.certificate);
  expect(await metricsAddress({ ca: bytes, serverName: "node.example" })).toBe("encrypted");
  expect(seen.at(-1)).toEqual({ authorization: null, authorized: false });
});

test.each([
  ["another authority", () => ({ ca: pairs.client.certificate })],
  ["no authority that the system knows", () => ({})],
  ["another name", () => ({ ca: pairs.authority.certificate, serverName: "other.example" })],
  ["plain text", () => undefined],
])("%s: nothing is said", async (_, tls) => {
  const before = seen.length;
  await expect(metricsAddress(tls())).rejects.toThrow(NodeUnreachable);
  expect(seen).toHaveLength(before);
});
