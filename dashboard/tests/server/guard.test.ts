import { expect, test } from "vitest";

import { refusal } from "../../server/http/guard";

const PORT = 7700;
const own = { host: `127.0.0.1:${PORT}` };
const json = { "content-type": "application/json" };

test.each([
  ["the page itself", "GET", own],
  ["localhost", "GET", { host: `LOCALHOST:${PORT}` }],
  ["IPv6", "GET", { host: `[::1]:${PORT}` }],
  ["a typed address", "GET", { ...own, "sec-fetch-site": "none", "sec-fetch-mode": "navigate" }],
  [
    "a link elsewhere",
    "GET",
    { ...own, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" },
  ],
  [
    "its own request",
    "POST",
    { ...own, ...json, origin: `http://127.0.0.1:${PORT}`, "sec-fetch-site": "same-origin" },
  ],
  ["a program of this machine", "POST", { ...own, ...json }],
])("lets in %s", (_what, method, headers) => {
  expect(refusal(method, headers, PORT)).toBeNull();
});

test.each([
  ["a name that points here", 421, "GET", { host: `evil.example:${PORT}` }],
  ["another port", 421, "GET", { host: "127.0.0.1:80" }],
  ["no host", 421, "GET", {}],
  ["another origin", 403, "POST", { ...own, ...json, origin: "http://evil.example" }],
  ["another port's origin", 403, "POST", { ...own, ...json, origin: "http://127.0.0.1:3000" }],
  ["an opaque origin", 403, "POST", { ...own, ...json, origin: "null" }],
  [
    "another site's stream",
    403,
    "GET",
    { ...own, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors" },
  ],
  [
    "another site's form",
    403,
    "POST",
    { ...own, ...json, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" },
  ],
  ["a form's body", 415, "POST", { ...own, "content-type": "text/plain" }],
  ["other methods", 405, "DELETE", own],
] as const)("refuses %s", (_what, status, method, headers) => {
  expect(refusal(method, headers, PORT)?.status).toBe(status);
});
