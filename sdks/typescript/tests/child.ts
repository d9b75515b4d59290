/** Processes that tests start: they write JSON lines, and end with the test. */

import { spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** The repository. */
export const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const BIN = `${ROOT}.venv/bin/`;

/** A program of the virtual environment, whose lines are read one by one. */
export class Child {
  readonly #process: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #ended: Promise<number | null>;
  #errors = "";

  constructor(program: string, args: readonly string[], env: Record<string, string> = {}) {
    this.#process = spawn(BIN + program, args, {
      cwd: ROOT,
      env: { ...process.env, OMP_NUM_THREADS: "1", TOKENIZERS_PARALLELISM: "false", ...env },
      stdio: ["pipe", "pipe", "pipe"],
    });
    this.#ended = new Promise((resolve) => this.#process.once("exit", resolve));
    const { stdout, stderr } = this.#process;
    if (stdout === null || stderr === null) {
      throw new Error(`${program} has no pipes`);
    }
    stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#errors = (this.#errors + text).slice(-4000);
    });
    this.#lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  }

  /** The next line of its standard output, as JSON. */
  async read(): Promise<Record<string, unknown>> {
    const line = await this.#lines.next();
    if (line.done === true) {
      throw new Error(`the process ended: ${this.#errors}`);
    }
    return JSON.parse(line.value) as Record<string, unknown>;
  }

  write(value: unknown): void {
    this.#process.stdin?.write(`${JSON.stringify(value)}\n`);
  }

  signal(name: NodeJS.Signals): void {
    this.#process.kill(name);
  }

  /** Waits until it ended, by its input's end or by a signal. */
  async end(signal?: NodeJS.Signals): Promise<void> {
    if (signal === undefined) {
      this.#process.stdin?.end();
    } else {
      this.#process.kill(signal);
    }
    await this.#ended;
  }
}
