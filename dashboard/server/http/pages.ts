import type { IncomingMessage, ServerResponse } from "node:http";

import type { Message } from "../../shared/messages";
import { LIMITS } from "../../shared/limits";
import { Refused } from "../problem";
import { beginEvents, eventText, keepAlive } from "./event_stream";

/**
 * The pages that listen. A page that reads more slowly than the fleet tells is
 * skipped, and gets the whole fleet once it has read what it had: what waits for
 * it never grows beyond one such message.
 */
export class Pages {
  readonly #whole: () => Message;
  readonly #before: () => void;
  /** Pages that are told of every change, with the bytes that may wait for each. */
  readonly #upToDate = new Map<ServerResponse, number>();
  readonly #behind = new Set<ServerResponse>();

  /** `whole` tells the fleet as it is; `before` brings all pages up to it first. */
  constructor(whole: () => Message, before: () => void) {
    this.#whole = whole;
    this.#before = before;
  }

  get count(): number {
    return this.#upToDate.size + this.#behind.size;
  }

  /** Begins to tell a page. Throws Refused for one too many. */
  add(request: IncomingMessage, response: ServerResponse): void {
    if (this.count >= LIMITS.pages) {
      const words = `${LIMITS.pages} pages of this dashboard are open: close some of them.`;
      throw new Refused(503, "TOO_MANY_REQUESTS", words);
    }
    beginEvents(request, response);
    keepAlive(response);
    response.once("close", () => {
      this.#upToDate.delete(response);
      this.#behind.delete(response);
    });
    this.#tellWhole(response);
  }

  send(messages: readonly Message[]): void {
    if (this.#upToDate.size === 0) return;
    const text = messages.map(eventText).join("");
    for (const response of this.#upToDate.keys()) this.#write(response, text);
  }

  end(): void {
    for (const response of [...this.#upToDate.keys(), ...this.#behind]) response.end();
  }

  #tellWhole(response: ServerResponse): void {
    this.#before();
    const text = eventText(this.#whole());
    this.#behind.delete(response);
    this.#upToDate.set(
      response,
      response.writableLength + Buffer.byteLength(text) + LIMITS.pageBytes,
    );
    response.write(text);
  }

  #write(response: ServerResponse, text: string): void {
    response.write(text);
    if (response.writableLength <= (this.#upToDate.get(response) ?? 0)) return;
    this.#upToDate.delete(response);
    this.#behind.add(response);
    response.once("drain", () => this.#tellWhole(response));
  }
}
