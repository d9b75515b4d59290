import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** The connections of a server, and the answers that each of them waits for. */
export class Connections {
  readonly #most: number;
  /** In the order in which they were used last. */
  readonly #open = new Map<Socket, Set<ServerResponse>>();

  /** `most`: how many may be open at once. */
  constructor(most: number) {
    this.#most = most;
  }

  /** A new one; while all are taken the longest idle one is closed for it, or it itself is. */
  add(socket: Socket): void {
    if (this.#open.size >= this.#most) {
      const idle = [...this.#open].find(([, answers]) => answers.size === 0)?.[0];
      (idle ?? socket).destroy();
      if (idle === undefined) return;
      this.#open.delete(idle);
    }
    this.#open.set(socket, new Set());
    socket.once("close", () => this.#left(socket));
  }

  /** A request came by a connection, and waits for its answer. */
  answering(socket: Socket, response: ServerResponse): void {
    const answers = this.#open.get(socket);
    if (answers === undefined) return;
    this.#open.delete(socket);
    this.#open.set(socket, answers.add(response));
    response.once("close", () => answers.delete(response));
  }

  /** Node.js does not close an answer that waits behind another one of its connection. */
  #left(socket: Socket): void {
    const answers = this.#open.get(socket) ?? [];
    this.#open.delete(socket);
    for (const response of answers) if (response.socket === null) response.emit("close");
  }
}
