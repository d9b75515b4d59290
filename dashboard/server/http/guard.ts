import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";

import { problem } from "../../shared/problem";

/** Headers of every answer: nothing but files of this origin, in no frame, told to nobody. */
export const SAFE_HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy": [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "manifest-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; "),
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
};

/** Why a request is refused; null when it is let in. */
export interface Refusal {
  status: number;
  reason: string;
  message: string;
}

/**
 * Lets in what a person's browser asks for on a page of this very server, and
 * programs of this machine. A name that was made to point here (DNS rebinding)
 * shows in Host; a page of another site in Origin or Sec-Fetch-Site.
 */
export function refusal(
  method: string,
  headers: IncomingHttpHeaders,
  port: number,
): Refusal | null {
  const hosts = ["127.0.0.1", "localhost", "[::1]"].map((name) => `${name}:${port}`);
  if (headers.host === undefined || !hosts.includes(headers.host.toLowerCase())) {
    return refused(421, "FOREIGN_HOST", `This server is not ${headers.host ?? "without a name"}.`);
  }
  const { origin } = headers;
  if (origin !== undefined && origin !== `http://${headers.host}`) {
    return refused(403, "FOREIGN_ORIGIN", `Pages of ${origin} may not ask here.`);
  }
  const site = headers["sec-fetch-site"];
  // "none": the person's own doing, such as a typed address. A link from elsewhere opens the page.
  const opens = method === "GET" && headers["sec-fetch-mode"] === "navigate";
  if (site !== undefined && site !== "same-origin" && site !== "none" && !opens) {
    return refused(403, "FOREIGN_ORIGIN", "Pages of other sites may not ask here.");
  }
  if (method !== "GET" && method !== "HEAD" && method !== "POST") {
    return refused(405, "WRONG_METHOD", `${method} is not served.`);
  }
  if (method === "POST" && !headers["content-type"]?.startsWith("application/json")) {
    return refused(415, "BAD_REQUEST", "A request's body is application/json.");
  }
  return null;
}

function refused(status: number, reason: string, message: string): Refusal {
  return { status, reason, message };
}

/** Answers `request` with the refusal it deserves; whether it did. */
export function refuse(request: IncomingMessage, response: ServerResponse, port: number): boolean {
  const why = refusal(request.method ?? "GET", request.headers, port);
  if (why === null) return false;
  const { status, reason, message } = why;
  response.writeHead(status, { ...SAFE_HEADERS, "content-type": "application/json" });
  response.end(JSON.stringify(problem(reason, message)));
  return true;
}
