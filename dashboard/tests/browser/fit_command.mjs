/** Answers `fit --fleet --json --node HOST:PORT -- MODEL` for the four nodes of a synthetic fleet. */

import { createHash } from "node:crypto";

const NAMES = ["studio-01", "mini-02", "mini-03", "macbook-04"];
const GIB = 2 ** 30;

const [, , ...words] = process.argv;
const model = words.at(-1);
if (words.slice(0, 4).join(" ") !== "fit --fleet --json --node" || words.at(-2) !== "--") {
  throw new Error(`It is asked otherwise: ${words.join(" ")}`);
}
const machines = NAMES.map((name, index) => ({
  nodes: [{ node_id: createHash("sha256").update(`synthetic node ${name}`).digest("hex"), name }],
  backend: "torch",
  memory_free_bytes: 8 * GIB,
  fits: index !== 1,
  sentences: index === 1 ? ["It takes 9 GiB to load."] : ["It fits.", "Give it all."],
  dtype: "float32",
  memory: { weight_bytes: GIB },
}));
process.stdout.write(JSON.stringify({ models: [{ model, fits: true, machines }] }));
