import { request, type IncomingMessage } from "node:http";
import { once } from "node:events";

import type { FleetView, Message } from "../../shared/messages";

/** A page without a browser: listens to the process's stream, and may stop reading. */
export class Follower {
  readonly messages: Message[] = [];
  #response: IncomingMessage | undefined;
  #rest = "";

  async open(url: string): Promise<void> {
    const asked = request(`${url}events`);
    asked.end();
    const [response] = (await once(asked, "response")) as [IncomingMessage];
    this.#response = response;
    response.setEncoding("utf8");
    response.on("data", (text: string) => this.#take(text));
  }

  /** The latest whole fleet. */
  get fleet(): FleetView | undefined {
    const latest = this.messages.findLast((message) => message.type === "fleet");
    return latest?.type === "fleet" ? latest.fleet : undefined;
  }

  count(type: Message["type"]): number {
    return this.messages.filter((message) => message.type === type).length;
  }

  /**
   * When the node's own word was heard last, milliseconds since 1970; 0 while the node is not reached.
   * That is in a whole fleet too, which makes void what waited to be told before it.
   */
  heardAt(nodeId: string): number {
    const told = this.messages.flatMap((message) => {
      if (message.type === "fleet") return message.fleet.nodes;
      return message.type === "node" || message.type === "history" ? [message.node] : [];
    });
    const latest = told.findLast((node) => node.nodeId === nodeId);
    return latest?.reachable ? latest.heardAt : 0;
  }

  pause(): void {
    this.#response?.pause();
  }

  resume(): void {
    this.#response?.resume();
  }

  close(): void {
    this.#response?.destroy();
  }

  #take(text: string): void {
    const events = (this.#rest + text).split("\n\n");
    this.#rest = events.pop() ?? "";
    for (const event of events) {
      if (event.startsWith("data: ")) this.messages.push(JSON.parse(event.slice(6)) as Message);
    }
  }
}
