/** What synthetic machines are and serve: a mixed desk fleet, made of its index. */

import { createHash } from "node:crypto";

import { create, type MessageInitShape } from "@bufbuild/protobuf";

import { ModelKind, ModelOfferSchema, Role, type ModelOffer } from "./contract";

const GIB = 2 ** 30;

export interface Machine {
  name: string;
  nodeId: string;
  hostId: string;
  platform: string;
  accelerator: { kind: string; name: string };
  memoryTotalBytes: number;
  /** host:port for rings; empty without. */
  ring: boolean;
  archiveBytes: number;
  /** Changes as models are loaded and unloaded. */
  offers: ModelOffer[];
  /** Whether programs of this machine may change them, as if it were theirs. */
  isOurs: boolean;
}

const BODIES = [
  { name: "studio", platform: "darwin/arm64", accelerator: "Apple M3 Ultra", gib: 192 },
  { name: "mini", platform: "darwin/arm64", accelerator: "Apple M4 Pro", gib: 64 },
  { name: "mini", platform: "darwin/arm64", accelerator: "Apple M4", gib: 32 },
  { name: "macbook", platform: "darwin/arm64", accelerator: "Apple M4 Max", gib: 48 },
  { name: "linux", platform: "linux/x86_64", accelerator: "NVIDIA RTX 4090", gib: 96 },
  { name: "box", platform: "linux/x86_64", accelerator: "AMD Ryzen 9", gib: 128 },
] as const;

export function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

export function machine(index: number): Machine {
  const body = BODIES[index % BODIES.length] ?? BODIES[0];
  const name = `${body.name}-${String(index + 1).padStart(2, "0")}`;
  const mac = body.platform === "darwin/arm64";
  const kind = mac ? "metal" : body.name === "linux" ? "cuda" : "cpu";
  return {
    name,
    nodeId: sha256(`synthetic node ${name}`),
    hostId: sha256(`synthetic machine ${name}`),
    platform: body.platform,
    accelerator: { kind, name: body.accelerator },
    memoryTotalBytes: body.gib * GIB,
    ring: mac,
    archiveBytes: index % 6 === 5 ? 32 * GIB : 0,
    offers: offers(index, mac ? "mlx" : "torch"),
    isOurs: index % 4 !== 3,
  };
}

/** Large machines verify, small ones draft, and every fourth does both. */
function offers(index: number, backend: string): ModelOffer[] {
  const served: ModelOffer[] = [];
  if (index % 3 === 0) served.push(verifier("qwen3-8b", backend, 0.021));
  if (index % 3 === 1) served.push(drafter("qwen3-8b-dflash", backend));
  if (index % 3 === 2) served.push(verifier("tiny", "torch", 0.002));
  if (index % 4 === 0) served.push(ngram());
  return served;
}

const QWEN = sha256("qwen3-8b weights");
const QWEN_TOKENIZER = sha256("qwen3 tokenizer");
const TINY_TOKENIZER = sha256("tiny tokenizer");

function offer(init: MessageInitShape<typeof ModelOfferSchema>): ModelOffer {
  return create(ModelOfferSchema, init);
}

/** A small model as a node offers it that has just loaded it. */
export function loadedOffer(modelId: string, role: Role): ModelOffer {
  const loaded = verifier("tiny", "torch", 0.004);
  return create(ModelOfferSchema, { ...loaded, modelId, role, weightsDigest: sha256(modelId) });
}

function verifier(modelId: string, backend: string, stepSeconds: number): ModelOffer {
  const large = modelId !== "tiny";
  return offer({
    modelId,
    role: Role.VERIFIER,
    kind: ModelKind.AUTOREGRESSIVE,
    weightsDigest: large ? QWEN : sha256("tiny weights"),
    tokenizerDigest: large ? QWEN_TOKENIZER : TINY_TOKENIZER,
    quantization: large ? "int4-g64" : "",
    dtype: large ? "bfloat16" : "float32",
    vocabularySize: large ? 151936 : 8192,
    contextLength: large ? 40960 : 8192,
    kvBytesPerToken: large ? 147456n : 4096n,
    stepCosts: [{ tokenCount: 1, seconds: stepSeconds }],
    exact: true,
    backend,
    architecture: large ? "Qwen3ForCausalLM" : "LlamaForCausalLM",
  });
}

function drafter(modelId: string, backend: string): ModelOffer {
  return offer({
    modelId,
    role: Role.PROPOSER,
    kind: ModelKind.DFLASH,
    weightsDigest: sha256("qwen3-8b-dflash weights"),
    tokenizerDigest: QWEN_TOKENIZER,
    dtype: "bfloat16",
    vocabularySize: 151936,
    contextLength: 40960,
    stepCosts: [{ tokenCount: 15, seconds: 0.006 }],
    backend,
    architecture: "DFlashDraftModel v1",
    targetWeightsDigest: QWEN,
    featureWidth: 4096,
    encoderDigest: sha256("encoder"),
    blockSize: 15,
  });
}

function ngram(): ModelOffer {
  return offer({
    modelId: "ngram",
    role: Role.PROPOSER,
    kind: ModelKind.NGRAM,
    stepCosts: [{ tokenCount: 7, seconds: 0.00002 }],
  });
}
