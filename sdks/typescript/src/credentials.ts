/** How a client proves who it is, and how it knows whom it talks to. */

import { X509Certificate } from "node:crypto";
import { connect as connectPlain, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";

import { KeyExposed, UsageError } from "./errors.js";

/** PEM texts, or their bytes. */
export type Pem = string | Uint8Array;

/** TLS towards every node. */
export interface TlsOptions {
  /** Certificates of the authorities that nodes' certificates must come from; the system's unless given. */
  readonly ca?: Pem | undefined;
  /** This client's certificate, with those between it and its authority. */
  readonly certificate?: Pem | undefined;
  /** The key of `certificate`. */
  readonly key?: Pem | undefined;
  /** The name that nodes' certificates must have; the host of each address unless given. */
  readonly serverName?: string | undefined;
}

/** TLS, or what gives it: asked for every new connection, so that a renewed certificate counts. */
export type TlsSource = TlsOptions | (() => TlsOptions);

/** What shows the client's own node, the one at its address, that it is called by its owner. */
export interface Owner {
  /** Travels to no other node. */
  readonly key: string;
  /** The name that the certificate of this one node must have; that of `tls` unless given. */
  readonly serverName?: string | undefined;
}

/** What a client presents to every node that it calls. */
export interface Credentials {
  readonly apiKey?: string | undefined;
  readonly tls?: TlsSource | undefined;
  /** For the client's own node alone. */
  readonly owner?: Owner | undefined;
}

/** Whether nodes know the client by its key: it has no certificate to show them. */
export function showsKeyAlone(credentials: Credentials): boolean {
  if (credentials.apiKey === undefined || credentials.tls === undefined) return false;
  return tlsOf({ tls: credentials.tls })?.certificate === undefined;
}

/** A DNS name in the certificate of every member of a fleet with an authority. */
const MEMBER_NAME = "member.kakeya";
const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";

/** The DNS name of one node, beside that: its id in base32, RFC 4648, without padding. */
export function nameOfNode(nodeId: string): string {
  if (!/^([0-9a-f]{2})+$/i.test(nodeId)) {
    throw new UsageError(`${JSON.stringify(nodeId.slice(0, 80))} is no node's id`);
  }
  const bits = Array.from(Buffer.from(nodeId, "hex"), (byte) => byte.toString(2).padStart(8, "0"));
  const letters = bits
    .join("")
    .match(/.{1,5}/g)
    ?.map((five) => BASE32[Number.parseInt(five.padEnd(5, "0"), 2)]);
  return `${letters?.join("")}.node.kakeya`;
}

/**
 * For one node: where any member of a fleet would do, this one must show that it is it. The
 * same for an empty id, and where the client awaits names of its own choice.
 */
export function forNode(credentials: Credentials, nodeId: string): Credentials {
  if (nodeId === "" || credentials.tls === undefined) return credentials;
  const serverName = nameOfNode(nodeId);
  const tls = (): TlsOptions => {
    const options = tlsOf({ tls: credentials.tls }) ?? {};
    return options.serverName === MEMBER_NAME ? { ...options, serverName } : options;
  };
  return { ...credentials, tls };
}

/** What each call carries as `Bearer`. */
export function bearerOf({ apiKey, owner }: Credentials): string | undefined {
  return owner === undefined ? apiKey : owner.key;
}

/** What a new connection is encrypted with; undefined for plain text. */
export function tlsOf({ tls, owner }: Credentials): TlsOptions | undefined {
  const options = typeof tls === "function" ? tls() : tls;
  if (options === undefined || owner?.serverName === undefined) return options;
  return { ...options, serverName: owner.serverName };
}

/**
 * What else than its absence can keep a node from answering this client, and its mend;
 * undefined without a certificate. TLS 1.3 tells a client little of why its own was refused.
 */
export function doubtOf(tls: TlsOptions | undefined): { cause: string; mend: string } | undefined {
  if (tls?.certificate === undefined) return undefined;
  const now = new Date();
  const clock = `by this machine's clock, ${utc(now)}`;
  let until = "";
  try {
    const certificate = new X509Certificate(pem(tls.certificate));
    const [begins, ends] = [new Date(certificate.validFrom), new Date(certificate.validTo)];
    if (now > ends) {
      const cause = `this client's certificate ended at ${utc(ends)} ${clock}`;
      return { cause, mend: "renew it, or set the clock" };
    }
    if (now < begins) {
      const cause = `this client's certificate is good from ${utc(begins)} on ${clock}`;
      return { cause, mend: "set the clock" };
    }
    until = `, good until ${utc(ends)},`;
  } catch {
    // The handshake's own words tell what is no certificate.
  }
  return {
    cause: `it is not there, or one side takes the other's certificate for none: ours${until}`,
    mend: "is `fleet join` running there, in the same fleet, with a right clock?",
  };
}

function utc(time: Date): string {
  return `${time.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/**
 * Throws KeyExposed for a key that would travel to `host`, another machine, in plain
 * text, and UsageError for what is no key or certificate.
 */
export function checkCredentials(host: string, credentials: Credentials): void {
  const apiKey = bearerOf(credentials);
  const tls = tlsOf(credentials);
  if (apiKey !== undefined && !/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new UsageError("an API key is printable ASCII without spaces");
  }
  if (apiKey !== undefined && tls === undefined && !isLoopback(host)) {
    throw new KeyExposed(
      `the API key would travel to ${host} in plain text: give the client \`tls\`, ` +
        "or reach the node through loopback",
    );
  }
  if (tls !== undefined && (tls.certificate === undefined) !== (tls.key === undefined)) {
    throw new UsageError("a client certificate needs its key: give both, or neither");
  }
}

/** A socket to the host and port of `url`, encrypted and checked with `tls`. */
export function openSocket(url: URL, tls: TlsOptions | undefined): Socket {
  // URLs leave out the port that their scheme implies.
  const port = Number(url.port || (tls === undefined ? 80 : 443));
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  if (tls === undefined) {
    return connectPlain({ host, port, noDelay: true });
  }
  // A server name is no address: TLS has no such names.
  const servername = tls.serverName ?? (isIP(host) ? undefined : host);
  return connectTls({
    host,
    port,
    ALPNProtocols: ["h2"],
    rejectUnauthorized: true,
    ...(tls.ca === undefined ? {} : { ca: pem(tls.ca) }),
    ...(tls.certificate === undefined ? {} : { cert: pem(tls.certificate) }),
    ...(tls.key === undefined ? {} : { key: pem(tls.key) }),
    ...(servername === undefined ? {} : { servername }),
  });
}

function pem(content: Pem): string | Buffer {
  return typeof content === "string" ? content : Buffer.from(content);
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "[::1]" || /^127(\.\d{1,3}){3}$/.test(host);
}
