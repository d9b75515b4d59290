import { spawn, type ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import { createInterface, type Interface } from "node:readline";
import type { Readable, Writable } from "node:stream";

/** Far longer than any takes on a busy machine. */
const END_MS = 30_000;

type Line = Record<string, unknown>;

/** A program that speaks JSON lines; those that are none are skipped. */
export class Child {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: Interface;
  readonly #waiting: Line[] = [];
  #wake = (): void => undefined;
  #closed = false;
  #pid: number;

  constructor(
    program: string,
    args: readonly string[],
    environment: NodeJS.ProcessEnv = {},
    folder = ".",
  ) {
    this.#child = spawn(program, args, {
      cwd: folder,
      stdio: ["pipe", "pipe", "inherit"],
      env: { ...process.env, ...environment },
    });
    this.#pid = this.#child.pid ?? 0;
    this.#lines = createInterface({ input: this.#child.stdout });
    this.#lines.on("line", (text) => {
      if (!text.startsWith("{")) return;
      const line = JSON.parse(text) as Line;
      // A copy of a process is no child of this one.
      if (line["event"] === "copied") this.#pid = Number(line["pid"]);
      this.#waiting.push(line);
      this.#wake();
    });
    this.#lines.once("close", () => {
      this.#closed = true;
      this.#wake();
    });
  }

  get pid(): number {
    return this.#pid;
  }

  /** The next line whose "event" is `event`; throws when the program ends before. */
  async line(event: string): Promise<Line> {
    for (;;) {
      const line = this.#waiting.shift();
      if (line?.["event"] === event) return line;
      if (line !== undefined) continue;
      if (this.#closed) throw new Error(`The program ended without saying ${event}.`);
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  tell(line: Line): void {
    this.#child.stdin.write(`${JSON.stringify(line)}\n`);
  }

  /** Ends its input, waits for its end; answers its exit code. */
  async end(signal?: NodeJS.Signals): Promise<number | null> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) {
      return this.#child.exitCode;
    }
    const ended = once(this.#child, "exit");
    this.#child.stdin.end();
    if (signal !== undefined) this.#child.kill(signal);
    const late = setTimeout(() => process.kill(this.#pid, "SIGKILL"), END_MS);
    await ended;
    clearTimeout(late);
    if (this.#child.signalCode === "SIGKILL" && signal !== "SIGKILL") {
      throw new Error(`It did not end within ${END_MS} ms: ${this.#child.spawnargs.join(" ")}`);
    }
    return this.#child.exitCode;
  }
}
