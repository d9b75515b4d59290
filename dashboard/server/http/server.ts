import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import type { ChatMessage, LogMessage } from "../../shared/messages";
import { problem } from "../../shared/problem";
import { problemOf, Refused } from "../problem";
import { LIMITS } from "../../shared/limits";
import { jsonBody } from "./body";
import { Connections } from "./connections";
import { beginEvents, eventText, keepAlive } from "./event_stream";
import type { Files } from "./files";
import { refuse, SAFE_HEADERS } from "./guard";
import type { Pages } from "./pages";
import { pathOf } from "./request_target";

/** What the routes do; each may throw what `problemOf` knows. */
export interface Routes {
  files: Files;
  pages: Pages;
  plan(body: Record<string, unknown>, signal: AbortSignal): Promise<unknown>;
  generate(
    body: Record<string, unknown>,
    signal: AbortSignal,
  ): AsyncGenerator<ChatMessage, void, undefined>;
  logs(
    body: Record<string, unknown>,
    signal: AbortSignal,
  ): AsyncGenerator<LogMessage, void, undefined>;
  close(body: Record<string, unknown>): Promise<unknown>;
  end(body: Record<string, unknown>, signal: AbortSignal): Promise<unknown>;
  rights(): Promise<unknown>;
  load(body: Record<string, unknown>, signal: AbortSignal): Promise<unknown>;
  unload(body: Record<string, unknown>, signal: AbortSignal): Promise<unknown>;
  fit(body: Record<string, unknown>, signal: AbortSignal): Promise<unknown>;
  stored(): Promise<unknown>;
  pull(body: Record<string, unknown>): Promise<unknown>;
  remove(body: Record<string, unknown>, signal: AbortSignal): Promise<unknown>;
}

/** How often Node.js looks for requests that have taken too long, milliseconds. */
const CHECK_MS = 1000;

/** The dashboard's HTTP server, on loopback only. */
export class HttpServer {
  readonly #server: Server;
  readonly #routes: Routes;
  readonly #connections = new Connections(LIMITS.connections);
  #port = 0;
  /** Requests of POST that are answered. */
  #answered = 0;

  constructor(routes: Routes) {
    this.#routes = routes;
    const times = {
      headersTimeout: LIMITS.headerSeconds * 1000,
      requestTimeout: LIMITS.requestSeconds * 1000,
      connectionsCheckingInterval: CHECK_MS,
    };
    this.#server = createServer(times, (request, response) => void this.#answer(request, response));
    this.#server.on("connection", (socket) => this.#connections.add(socket));
  }

  /**
   * Listens; answers the page's address. Where the port is taken throws Refused, or takes any
   * other with `orAny`.
   */
  async listen(host: string, port: number, orAny = false): Promise<string> {
    this.#server.listen(port, host);
    try {
      await once(this.#server, "listening");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
      if (orAny) return this.listen(host, 0);
      throw new Refused(409, "PORT_IN_USE", `Port ${port} is taken: choose another with --port.`);
    }
    const address = this.#server.address() as AddressInfo;
    this.#port = address.port;
    const name = address.family === "IPv6" ? `[${address.address}]` : address.address;
    return `http://${name}:${address.port}/`;
  }

  async end(): Promise<void> {
    this.#routes.pages.end();
    this.#server.close();
    this.#server.closeAllConnections();
    if (this.#server.listening) await once(this.#server, "close");
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const left = new AbortController();
    this.#connections.answering(request.socket, response);
    response.once("close", () => left.abort());
    // All of it: what escapes from here ends the process.
    try {
      if (refuse(request, response, this.#port)) return;
      const path = pathOf(request.url ?? "");
      const route = `${request.method} ${path}`;
      if (request.method !== "POST") {
        await this.#route(route, path, request, response, left.signal);
        return;
      }
      this.#begin();
      try {
        await this.#route(route, path, request, response, left.signal);
      } finally {
        this.#answered -= 1;
      }
    } catch (error) {
      if (left.signal.aborted || request.errored !== null) return;
      fail(response, error);
    }
  }

  /** Counts one more request. Throws Refused for one too many. */
  #begin(): void {
    if (this.#answered >= LIMITS.requests) {
      const words = `${LIMITS.requests} requests are being answered: ask again once one is done.`;
      throw new Refused(503, "TOO_MANY_REQUESTS", words);
    }
    this.#answered += 1;
  }

  async #route(
    route: string,
    path: string,
    request: IncomingMessage,
    response: ServerResponse,
    signal: AbortSignal,
  ): Promise<void> {
    const { files, pages, plan, generate, logs, close, end } = this.#routes;
    const { rights, load, unload, fit, stored, pull, remove } = this.#routes;
    switch (route) {
      case "GET /events":
        return pages.add(request, response);
      case "POST /plan":
        return answer(response, await plan(await jsonBody(request), signal));
      case "POST /generate":
        return tell(request, response, generate(await jsonBody(request), signal));
      case "POST /logs":
        return tell(request, response, logs(await jsonBody(request), signal));
      case "POST /close":
        return answer(response, await close(await jsonBody(request)));
      case "POST /end":
        return answer(response, await end(await jsonBody(request), signal));
      case "POST /rights":
        return answer(response, await rights());
      case "POST /load":
        return answer(response, await load(await jsonBody(request), signal));
      case "POST /unload":
        return answer(response, await unload(await jsonBody(request), signal));
      case "POST /fit":
        return answer(response, await fit(await jsonBody(request), signal));
      case "POST /stored":
        return answer(response, await stored());
      case "POST /pull":
        return answer(response, await pull(await jsonBody(request)));
      case "POST /remove":
        return answer(response, await remove(await jsonBody(request), signal));
      default:
        if (request.method === "POST") {
          response.writeHead(404, { ...SAFE_HEADERS, "content-type": "application/json" });
          response.end(JSON.stringify(problem("NO_SUCH_PATH", `${path} is not served.`)));
          return;
        }
        return files.serve(path, response);
    }
  }
}

function answer(response: ServerResponse, value: unknown): void {
  response.writeHead(200, {
    ...SAFE_HEADERS,
    "content-type": "application/json",
    "cache-control": "no-store",
  });
  response.end(JSON.stringify(value ?? {}));
}

/** Streams the messages; an error before the first of them has a status of its own. */
async function tell(
  request: IncomingMessage,
  response: ServerResponse,
  messages: AsyncGenerator<ChatMessage | LogMessage, void, undefined>,
): Promise<void> {
  const first = await messages.next();
  beginEvents(request, response);
  keepAlive(response);
  try {
    if (!first.done) response.write(eventText(first.value));
    for await (const message of messages) {
      // A page that reads slowly slows the generation down, not this process.
      if (!response.write(eventText(message))) await drained(response);
    }
  } catch (error) {
    const known = problemOf(error);
    if (known === null) throw error;
    response.write(eventText({ type: "problem", problem: known.problem }));
  }
  response.end();
}

async function drained(response: ServerResponse): Promise<void> {
  if (response.destroyed) return;
  await new Promise<void>((resolve) => {
    response.once("drain", resolve);
    response.once("close", resolve);
  });
}

function fail(response: ServerResponse, error: unknown): void {
  const known = problemOf(error);
  if (known === null) {
    process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`);
  }
  if (response.headersSent) {
    response.end();
    return;
  }
  const told = known ?? {
    status: 500,
    problem: problem("INTERNAL_ERROR", "The dashboard's process failed; its terminal says where."),
  };
  response.writeHead(told.status, { ...SAFE_HEADERS, "content-type": "application/json" });
  response.end(JSON.stringify(told.problem));
}
