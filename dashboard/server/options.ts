import { parseArgs } from "node:util";

/** Where this process listens: on this machine, to nobody else. */
const LOOPBACK = ["127.0.0.1", "::1", "localhost"];

export interface Options {
  /** The node that is asked first, host:port; empty for any of this machine. */
  node: string;
  host: string;
  /** 0 for any that is free. */
  port: number;
  /** Whether any that is free will do where that one is taken. */
  orAnyPort: boolean;
  /** Folder of the built page. */
  page: string;
  /** Whether the process ends when its standard input does, as with its parent. */
  endWithInput: boolean;
  /** Whether nodes are asked only once the input has said as whom. */
  waitForAccess: boolean;
  /** The program of `fleet` and its first words; empty where it is not known. */
  fleetCommand: string[];
}

/** Options as the command line has them. Throws UsageProblem. */
export function optionsOf(argv: readonly string[], pageFolder: string): Options {
  const { values } = parse(argv);
  const port = Number(values.port);
  if (values.node !== "" && !/^.+:\d+$/.test(values.node)) {
    throw new UsageProblem(`--node ${values.node} is not HOST:PORT.`);
  }
  if (!LOOPBACK.includes(values.host)) {
    throw new UsageProblem(`--host ${values.host} is not loopback: ${LOOPBACK.join(", ")}.`);
  }
  if (!Number.isInteger(port) || port < 0 || port > 65535) {
    throw new UsageProblem(`--port ${values.port} is no port.`);
  }
  return {
    node: values.node,
    host: values.host,
    port,
    orAnyPort: values["or-any-port"],
    page: values.page,
    endWithInput: values["end-with-input"],
    waitForAccess: values["wait-for-access"],
    fleetCommand: values["fleet-command"],
  };

  function parse(argv: readonly string[]) {
    try {
      return parseArgs({
        args: [...argv],
        options: {
          node: { type: "string", default: "" },
          host: { type: "string", default: "127.0.0.1" },
          port: { type: "string", default: "0" },
          "or-any-port": { type: "boolean", default: false },
          page: { type: "string", default: pageFolder },
          "end-with-input": { type: "boolean", default: false },
          "wait-for-access": { type: "boolean", default: false },
          "fleet-command": { type: "string", multiple: true, default: [] },
        },
      });
    } catch (error) {
      throw new UsageProblem(error instanceof Error ? error.message : String(error));
    }
  }
}

/** The command line is not one that this program understands. */
export class UsageProblem extends Error {}
