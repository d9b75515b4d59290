/** On which machines a model would fit: `fleet fit --fleet`, whose answer the page shows. */

import { execFile } from "node:child_process";

import type { FitView } from "../../shared/messages";
import { Fields } from "../http/fields";
import { Refused } from "../problem";

/** Milliseconds that the command may take: it reads headers, some of them from the hub. */
const PATIENCE_MS = 60_000;
/** Longest answer, in bytes: a fleet of some hundred machines. */
const ANSWER_BYTES = 4 * 2 ** 20;

/** What the command prints, as far as the page shows it. */
interface Told {
  models?: { fits: boolean; machines: ToldMachine[] }[];
  error?: { reason: string; message: string };
}

interface ToldMachine {
  nodes: { node_id: string }[];
  backend: string;
  memory_free_bytes: number | null;
  /** These are absent where the machine's free memory is not known. */
  fits?: boolean;
  sentences?: string[];
  dtype?: string;
  memory?: { weight_bytes: number };
}

/** Runs the command, one at a time. */
export class Fit {
  readonly #command: readonly string[];
  #before: Promise<unknown> = Promise.resolve();

  /** `command`: the program of `fleet` and its first words; empty where it is not known. */
  constructor(command: readonly string[]) {
    this.#command = command;
  }

  /** Answers a `FitQuestion` of the fleet of the node at `node`, host:port. Throws Refused. */
  async ask(body: Record<string, unknown>, node: string, signal: AbortSignal): Promise<FitView> {
    const model = new Fields(body).text("model", 1024);
    const before = this.#before;
    const asked = before.then(() => this.#run(model, node, signal));
    this.#before = asked.catch(() => undefined);
    return asked;
  }

  async #run(model: string, node: string, signal: AbortSignal): Promise<FitView> {
    const [program, ...words] = this.#command;
    if (program === undefined) {
      const message = "Who fits where is known to a dashboard that `fleet dashboard` started.";
      throw new Refused(503, "UNAVAILABLE", message);
    }
    signal.throwIfAborted();
    const told = await printed(
      program,
      [...words, "fit", "--fleet", "--json", "--node", node, "--", model],
      signal,
    );
    if (told.error !== undefined) {
      throw new Refused(422, told.error.reason, told.error.message);
    }
    return fitView(model, told);
  }
}

/** The JSON object that a command prints, whatever its exit code. Throws Refused for none. */
function printed(program: string, words: string[], signal: AbortSignal): Promise<Told> {
  const options = { signal, timeout: PATIENCE_MS, maxBuffer: ANSWER_BYTES };
  return new Promise((resolve, reject) => {
    execFile(program, words, options, (failed, output) => {
      if (signal.aborted) {
        reject(signal.reason as Error);
        return;
      }
      try {
        resolve(JSON.parse(output) as Told);
      } catch (error) {
        if (!(error instanceof SyntaxError)) throw error;
        reject(
          failed?.killed === true
            ? new Refused(504, "DEADLINE_EXCEEDED", `It took longer than ${PATIENCE_MS / 1000} s.`)
            : new Refused(502, "UNEXPECTED_ERROR", "`fleet fit` ended without an answer."),
        );
      }
    });
  });
}

function fitView(model: string, told: Told): FitView {
  const machines = told.models?.[0]?.machines ?? [];
  const read = machines.find((machine) => machine.memory !== undefined);
  return {
    model,
    dtype: read?.dtype ?? "",
    weightBytes: read?.memory?.weight_bytes ?? 0,
    machines: machines.map((machine) => ({
      nodeIds: machine.nodes.map((node) => node.node_id),
      freeBytes: machine.memory_free_bytes ?? 0,
      fits: machine.fits ?? false,
      sentences: machine.sentences ?? ["It does not say how much memory is free."],
    })),
  };
}
