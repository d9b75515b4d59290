/** Plain views for tests. */

import type { PullSource } from "@kakeya/runtime";

import type {
  BlockView,
  EventView,
  FleetView,
  ModelView,
  NodeView,
  Sample,
  SessionView,
  StoredModelView,
  TransferView,
} from "../shared/messages";

export function nodeView(nodeId: string): NodeView {
  return {
    nodeId,
    name: nodeId,
    address: "127.0.0.1:1",
    isSelf: false,
    liveness: "alive",
    reachable: true,
    unreachableReason: "",
    heardAt: 0,
    roundTripSeconds: 0,
    platform: "linux/x86_64",
    accelerator: "cpu",
    hostId: nodeId,
    shape: "linux",
    softwareVersion: "0.1.0",
    protocolMin: 1,
    protocolMax: 1,
    startedAt: 0,
    memoryTotalBytes: 8e9,
    memoryFreeBytes: 4e9,
    kvBytes: 0,
    kvBudgetBytes: 1e9,
    archiveBytes: 0,
    archiveBudgetBytes: 0,
    sessionCount: 0,
    generatingCount: 0,
    draining: false,
    ringAddress: "",
    httpAddress: "",
    models: [],
    ways: [],
    links: [],
    acceptances: [],
    seedFaults: [],
    samples: [],
  };
}

export function modelView(modelId: string, role: ModelView["role"] = "verifier"): ModelView {
  return {
    modelId,
    role,
    weightsDigest: "",
    tokenizerDigest: "",
    quantization: "",
    dtype: "float32",
    contextLength: 8192,
    vocabularySize: 8192,
    backend: "torch",
    architecture: "LlamaForCausalLM",
    kind: "autoregressive",
    exact: true,
    stepSeconds: 0.002,
    rankCount: 1,
  };
}

/** A load that is done, unless `part` says otherwise. */
export function transferView(
  nodeId: string,
  modelId: string,
  part: Partial<TransferView> = {},
): TransferView {
  return {
    nodeId,
    modelId,
    transferId: "t1",
    kind: "load",
    state: "done",
    doneBytes: part.totalBytes ?? 0,
    totalBytes: 0,
    bytesPerSecond: 0,
    remainingSeconds: 0,
    startedAt: 1,
    error: "",
    pull: null,
    ...part,
  };
}

/** What a pull brought, all of it, unless `part` says otherwise. */
export function storedView(modelId: string, part: Partial<StoredModelView> = {}): StoredModelView {
  return {
    modelId,
    byteCount: 40,
    filesDigest: "f0",
    isWhole: true,
    isServed: false,
    pulledAt: 7,
    sourceNames: ["a"],
    ...part,
  };
}

/** What came of a model from a node that is called as its id. */
export function sourceView(nodeId: string, doneBytes = 0, fault = ""): PullSource {
  return { nodeId, nodeName: nodeId, doneBytes, fault };
}

export function sampleView(at: number): Sample {
  return {
    at,
    tokensPerSecond: 10,
    prefillTokensPerSecond: 0,
    sessionCount: 1,
    generatingCount: 1,
    draftStreamCount: 0,
    kvBytes: 1000,
    memoryFreeBytes: 4e9,
    archiveBytes: 0,
    draftedCount: 0,
    acceptedCount: 0,
    verifyForwardCount: 0,
    draftsPerSecond: 0,
    linkBytesPerSecond: 0,
    cpuShare: null,
    processCpuShare: null,
    acceleratorShare: null,
  };
}

export function eventView(nodeId: string, at: number): EventView {
  return {
    key: `${nodeId}/${at}`,
    at,
    severity: "info",
    kind: "TOLD",
    message: "",
    mend: "",
    nodeId,
    subjectNodeId: "",
    sessionId: "",
  };
}

export function blockView(firstIndex: number): BlockView {
  return {
    firstIndex,
    drafted: 3,
    accepted: 3,
    committed: 4,
    draftSeconds: 0.001,
    wireSeconds: 0.001,
    waitSeconds: 0.001,
    verifySeconds: 0.01,
    draftedAhead: false,
    startSeconds: 0,
    generation: 1,
  };
}

export function sessionView(nodeId: string, sessionId: string): SessionView {
  return {
    sessionId,
    nodeId,
    modelId: "tiny",
    label: "",
    state: "generating",
    historyLength: 4,
    residentTokenCount: 4,
    kvBytes: 4096,
    kvStrategy: "sink_window",
    sinkTokens: 4,
    windowTokens: 1024,
    openedAt: 0,
    idleSince: 0,
    ttlSeconds: 900,
    proposerNodeId: "",
    proposerModelId: "",
    transport: "",
    blockSize: 0,
    dropReason: "",
    planReasons: [],
    archiveNodeIds: [],
    evictedTokenCount: 0,
    evictedBytes: 0,
    evictedCodec: "",
    forgottenTokenCount: 0,
    recomputedTokenCount: 0,
    invariants: [],
    rebuildCount: 0,
    tokensPerSecond: 10,
    generationCount: 1,
    generatedTokenCount: 4,
    prefilledTokenCount: 0,
    prefillSeconds: 0,
    draftedCount: 0,
    acceptedCount: 0,
    verifyForwardCount: 0,
    draftSeconds: 0,
    wireSeconds: 0,
    waitSeconds: 0,
    verifySeconds: 0,
    stopReason: "",
    linkChanges: [],
    blocks: [],
  };
}

export function fleetView(nodeIds: readonly string[]): FleetView {
  return {
    fleetName: "test",
    gateway: { address: "127.0.0.1:1", waitingFor: "", fault: "" },
    nodes: nodeIds.map(nodeView),
    sessions: [],
    events: [],
    transfers: [],
  };
}
