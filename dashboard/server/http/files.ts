import { readFileSync, readdirSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { extname, join, relative, sep } from "node:path";

import { SAFE_HEADERS } from "./guard";

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".ico": "image/x-icon",
  ".json": "application/json",
  ".webmanifest": "application/manifest+json",
  ".woff2": "font/woff2",
};

/** The built page, read once: what is served is what is known, and no path leaves it. */
export class Files {
  readonly #contents = new Map<string, Buffer>();

  /** Throws when `folder` has no index.html. */
  constructor(folder: string) {
    for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const path = join(entry.parentPath, entry.name);
      const name = `/${relative(folder, path).split(sep).join("/")}`;
      this.#contents.set(name, readFileSync(path));
    }
    if (!this.#contents.has("/index.html")) throw new Error(`${folder} has no index.html.`);
  }

  /** Answers with the file at `path`, or with the page for a path that names none of its files. */
  serve(path: string, response: ServerResponse): void {
    const known = this.#contents.get(path);
    if (known === undefined && extname(path) !== "") {
      response.writeHead(404, { ...SAFE_HEADERS, "content-type": "text/plain" });
      response.end("There is no such file.\n");
      return;
    }
    const name = known === undefined ? "/index.html" : path;
    response.writeHead(200, {
      ...SAFE_HEADERS,
      "content-type": TYPES[extname(name)] ?? "application/octet-stream",
      // Names of built files carry a hash of their content.
      "cache-control": name.startsWith("/assets/") ? "max-age=31536000, immutable" : "no-cache",
    });
    response.end(known ?? this.#contents.get(name));
  }
}
