/** The scripted node of tests/sdk, as a process: sdks/README.md describes its commands. */

import { Child, ROOT } from "./child.js";

/** What the node saw and holds. */
export interface Report {
  readonly requests: Readonly<Record<string, readonly unknown[]>>;
  readonly authorizations: readonly string[];
  readonly sessions: Readonly<Record<string, readonly number[]>>;
  readonly streams: readonly { readonly sent: number; readonly cancelled: boolean }[];
}

/** A scripted node that is told what to do. */
export class ScriptedNode {
  readonly #child: Child;
  address = "";

  private constructor() {
    this.#child = new Child("python", ["-m", "tests.support.vector_node"], {
      PYTHONPATH: `${ROOT}sdks/python`,
    });
  }

  static async start(): Promise<ScriptedNode> {
    const node = new ScriptedNode();
    node.address = String((await node.#child.read())["address"]);
    return node;
  }

  /** A fresh node at another address. */
  async reset(): Promise<void> {
    this.address = String((await this.tell({ reset: {} }))["address"]);
  }

  async tell(command: Readonly<Record<string, unknown>>): Promise<Record<string, unknown>> {
    this.#child.write(command);
    const answer = await this.#child.read();
    if ("error" in answer) {
      throw new Error(`${JSON.stringify(command)}: ${String(answer["error"])}`);
    }
    return answer;
  }

  set(script: Readonly<Record<string, unknown>>): Promise<unknown> {
    return this.tell({ set: script });
  }

  refuse(method: string, code: string, more: Readonly<Record<string, unknown>> = {}) {
    return this.tell({ refuse: { method, code, ...more } });
  }

  async report(): Promise<Report> {
    return (await this.tell({ report: {} })) as unknown as Report;
  }

  /** Whether the node saw, within 10 s, that its stream of that number was left. */
  async cancelled(stream: number): Promise<boolean> {
    return (await this.tell({ await_cancelled: stream }))["cancelled"] === true;
  }

  /** Stops and continues the whole process, as a frozen machine does. */
  freeze(): void {
    this.#child.signal("SIGSTOP");
  }

  thaw(): void {
    this.#child.signal("SIGCONT");
  }

  end(): Promise<void> {
    return this.#child.end();
  }
}
