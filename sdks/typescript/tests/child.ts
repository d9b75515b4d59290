/** Processes that tests start: they write JSON lines, and end with the test. */

import { spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** The repository. */
export const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const BIN = `${ROOT}.venv/bin/`;
/** Where `make test` has the process that all suites' agents are copies of; tests/warm. */
const COPIES = process.env["TESTS_WARM_FOLDER"] !== undefined;

/** A program of the virtual environment, whose lines are read one by one. */
export class Child {
  readonly #process: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #ended: Promise<number | null>;
  /** Whom signals end: a copy is no child of this process. */
  readonly #pid: Promise<number>;
  #errors = "";

  constructor(program: string, args: readonly string[], env: Record<string, string> = {}) {
    const copy = COPIES && program === "fleet";
    const words = copy ? ["-m", "tests.warm.beside", JSON.stringify(env), ...args] : args;
    this.#process = spawn(BIN + (copy ? "python" : program), words, {
      cwd: ROOT,
      env: {
        ...process.env,
        OMP_NUM_THREADS: "1",
        TOKENIZERS_PARALLELISM: "false",
        ...(copy ? {} : env),
      },
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
    const lines = createInterface({ input: stdout });
    this.#pid = new Promise((resolve) => {
      if (!copy) resolve(this.#process.pid ?? 0);
      lines.on("line", (line) => {
        const told = copy ? (JSON.parse(line) as Record<string, unknown>) : {};
        if (told["event"] === "copied") resolve(Number(told["pid"]));
      });
    });
    this.#lines = lines[Symbol.asyncIterator]();
  }

  /** The next line of its standard output. */
  async line(): Promise<string> {
    const line = await this.#lines.next();
    if (line.done === true) {
      throw new Error(`the process ended: ${this.#errors}`);
    }
    return line.value;
  }

  /** The same as JSON. */
  async read(): Promise<Record<string, unknown>> {
    const told = JSON.parse(await this.line()) as Record<string, unknown>;
    return told["event"] === "copied" ? this.read() : told;
  }

  /** Lets it work for a twentieth of the time until what this gives is ended. */
  async slowed(): Promise<Child> {
    const stands = ["-m", "scripts.support.slowing", String(await this.#pid), "0.1"];
    const slower = new Child("python", stands);
    await slower.line();
    return slower;
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
    } else if (this.#process.exitCode === null && this.#process.signalCode === null) {
      process.kill(await this.#pid, signal);
    }
    await this.#ended;
  }
}
