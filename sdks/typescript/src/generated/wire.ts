/** From messages of `kakeya.v1` to values. Made by `make stubs` from proto/. */

import { create } from "@bufbuild/protobuf";

import { enumName } from "../wire/numbers.js";
import * as capabilityPb from "./kakeya/v1/capability_pb.js";
import * as modelPb from "./kakeya/v1/model_pb.js";
import * as model_servicePb from "./kakeya/v1/model_service_pb.js";
import * as placementPb from "./kakeya/v1/placement_pb.js";
import * as runtimePb from "./kakeya/v1/runtime_pb.js";
import * as tensorPb from "./kakeya/v1/tensor_pb.js";
import * as values from "./values.js";

/** The `KvStrategy` that a number of the contract stands for. */
export function kvStrategy(number: number): values.KvStrategy {
  return enumName(placementPb.KvStrategySchema, number, values.KV_STRATEGIES);
}

/** The `RestorerKind` that a number of the contract stands for. */
export function restorerKind(number: number): values.RestorerKind {
  return enumName(placementPb.RestorerKindSchema, number, values.RESTORER_KINDS);
}

/** The `KvQuality` that a number of the contract stands for. */
export function kvQuality(number: number): values.KvQuality {
  return enumName(placementPb.KvQualitySchema, number, values.KV_QUALITIES);
}

/** The `Transport` that a number of the contract stands for. */
export function transport(number: number): values.Transport {
  return enumName(placementPb.TransportSchema, number, values.TRANSPORTS);
}

/** The `RejectionReason` that a number of the contract stands for. */
export function rejectionReason(number: number): values.RejectionReason {
  return enumName(placementPb.RejectionReasonSchema, number, values.REJECTION_REASONS);
}

/** The `LinkPurpose` that a number of the contract stands for. */
export function linkPurpose(number: number): values.LinkPurpose {
  return enumName(tensorPb.LinkPurposeSchema, number, values.LINK_PURPOSES);
}

/** The `Role` that a number of the contract stands for. */
export function role(number: number): values.Role {
  return enumName(modelPb.RoleSchema, number, values.ROLES);
}

/** The `ModelKind` that a number of the contract stands for. */
export function modelKind(number: number): values.ModelKind {
  return enumName(modelPb.ModelKindSchema, number, values.MODEL_KINDS);
}

/** The `Liveness` that a number of the contract stands for. */
export function liveness(number: number): values.Liveness {
  return enumName(capabilityPb.LivenessSchema, number, values.LIVENESSES);
}

/** The `LimitUnit` that a number of the contract stands for. */
export function limitUnit(number: number): values.LimitUnit {
  return enumName(capabilityPb.LimitUnitSchema, number, values.LIMIT_UNITS);
}

/** The `EventSeverity` that a number of the contract stands for. */
export function eventSeverity(number: number): values.EventSeverity {
  return enumName(capabilityPb.EventSeveritySchema, number, values.EVENT_SEVERITIES);
}

/** The `TransferKind` that a number of the contract stands for. */
export function transferKind(number: number): values.TransferKind {
  return enumName(capabilityPb.TransferKindSchema, number, values.TRANSFER_KINDS);
}

/** The `TransferState` that a number of the contract stands for. */
export function transferState(number: number): values.TransferState {
  return enumName(capabilityPb.TransferStateSchema, number, values.TRANSFER_STATES);
}

/** The `LoadPhase` that a number of the contract stands for. */
export function loadPhase(number: number): values.LoadPhase {
  return enumName(model_servicePb.LoadPhaseSchema, number, values.LOAD_PHASES);
}

/** The `PullPhase` that a number of the contract stands for. */
export function pullPhase(number: number): values.PullPhase {
  return enumName(model_servicePb.PullPhaseSchema, number, values.PULL_PHASES);
}

/** The `StopReason` that a number of the contract stands for. */
export function stopReason(number: number): values.StopReason {
  return enumName(runtimePb.StopReasonSchema, number, values.STOP_REASONS);
}

/** The `DropReason` that a number of the contract stands for. */
export function dropReason(number: number): values.DropReason {
  return enumName(runtimePb.DropReasonSchema, number, values.DROP_REASONS);
}

/** The `SessionState` that a number of the contract stands for. */
export function sessionState(number: number): values.SessionState {
  return enumName(runtimePb.SessionStateSchema, number, values.SESSION_STATES);
}

/** The `SessionOutcome` that a number of the contract stands for. */
export function sessionOutcome(number: number): values.SessionOutcome {
  return enumName(runtimePb.SessionOutcomeSchema, number, values.SESSION_OUTCOMES);
}

/** The `StepCost` that a message tells of. */
export function stepCost(message: modelPb.StepCost): values.StepCost {
  return {
    tokenCount: message.tokenCount,
    seconds: message.seconds,
  };
}

/** The `ModelOffer` that a message tells of. */
export function modelOffer(message = create(modelPb.ModelOfferSchema)): values.ModelOffer {
  return {
    modelId: message.modelId,
    role: role(message.role),
    kind: modelKind(message.kind),
    weightsDigest: message.weightsDigest,
    tokenizerDigest: message.tokenizerDigest,
    quantization: message.quantization,
    dtype: message.dtype,
    vocabularySize: message.vocabularySize,
    contextLength: message.contextLength,
    kvBytesPerToken: Number(message.kvBytesPerToken),
    stepCosts: message.stepCosts.map(stepCost),
    exact: message.exact,
    kvFixedBytes: Number(message.kvFixedBytes),
    backend: message.backend,
    architecture: message.architecture,
    targetWeightsDigest: message.targetWeightsDigest,
    featureWidth: message.featureWidth,
    encoderDigest: message.encoderDigest,
    tappedLayers: message.tappedLayers,
    blockSize: message.blockSize,
    historyLayerCount: message.historyLayerCount,
    rankCount: message.rankCount,
    threadCount: message.threadCount,
    evictedArithmetic: message.evictedArithmetic,
    arithmetic: message.arithmetic,
    givenHistoryTokens: message.givenHistoryTokens,
    endsDrafts: message.endsDrafts,
  };
}

/** The `Placement` that a message tells of. */
export function placement(message = create(placementPb.PlacementSchema)): values.Placement {
  return {
    nodeId: message.nodeId,
    nodeName: message.nodeName,
    address: message.address,
    modelId: message.modelId,
  };
}

/** The `Rejection` that a message tells of. */
export function rejection(message: placementPb.Rejection): values.Rejection {
  return {
    verifier: placement(message.verifier),
    proposer: message.proposer ? placement(message.proposer) : null,
    reason: rejectionReason(message.reason),
    explanation: message.explanation,
    predictedTokensPerSecond: message.predictedTokensPerSecond,
  };
}

/** The `ArchiveRange` that a message tells of. */
export function archiveRange(message: placementPb.ArchiveRange): values.ArchiveRange {
  return {
    archive: placement(message.archive),
    firstPosition: Number(message.firstPosition),
    endPosition: Number(message.endPosition),
  };
}

/** The `Trial` that a message tells of. */
export function trial(message: placementPb.Trial): values.Trial {
  return {
    proposer: placement(message.proposer),
    predictedTokensPerSecondHigh: message.predictedTokensPerSecondHigh,
  };
}

/** The `Plan` that a message tells of. */
export function plan(message = create(placementPb.PlanSchema)): values.Plan {
  return {
    verifier: placement(message.verifier),
    proposer: message.proposer ? placement(message.proposer) : null,
    transport: message.transport ? transport(message.transport) : null,
    blockSize: message.blockSize,
    predictedTokensPerSecond: message.predictedTokensPerSecond,
    predictedAloneTokensPerSecond: message.predictedAloneTokensPerSecond,
    roundTripSeconds: message.roundTripSeconds,
    acceptanceRate: message.acceptanceRate,
    acceptanceMeasured: message.acceptanceMeasured,
    kvBytes: Number(message.kvBytes),
    reasons: message.reasons,
    rejections: message.rejections.map(rejection),
    exact: message.exact,
    archive: message.archive ? placement(message.archive) : null,
    archives: message.archives.map(archiveRange),
    acceptanceRateLow: message.acceptanceRateLow,
    acceptanceRateHigh: message.acceptanceRateHigh,
    predictedTokensPerSecondLow: message.predictedTokensPerSecondLow,
    predictedTokensPerSecondHigh: message.predictedTokensPerSecondHigh,
    exploring: message.exploring,
    kvStrategy: message.kvStrategy ? kvStrategy(message.kvStrategy) : null,
    trials: message.trials.map(trial),
    standIn: message.standIn ? trial(message.standIn) : null,
  };
}

/** The `Timings` that a message tells of. */
export function timings(message = create(runtimePb.GenerateTimingsSchema)): values.Timings {
  return {
    queueSeconds: message.queueSeconds,
    prefillSeconds: message.prefillSeconds,
    firstTokenSeconds: message.firstTokenSeconds,
    totalSeconds: message.totalSeconds,
  };
}

/** The `DraftFault` that a message tells of. */
export function draftFault(message: runtimePb.DraftFault): values.DraftFault {
  return {
    reason: dropReason(message.reason),
    count: message.count,
  };
}

/** The `BlockTiming` that a message tells of. */
export function blockTiming(message: runtimePb.BlockTiming): values.BlockTiming {
  return {
    firstIndex: Number(message.firstIndex),
    draftedCount: message.draftedCount,
    acceptedCount: message.acceptedCount,
    draftSeconds: message.draftSeconds,
    wireSeconds: message.wireSeconds,
    waitSeconds: message.waitSeconds,
    verifySeconds: message.verifySeconds,
    draftedAhead: message.draftedAhead,
    startSeconds: message.startSeconds,
    generationNumber: message.generationNumber,
    committedCount: message.committedCount,
    proposerNodeId: message.proposerNodeId,
    proposerModelId: message.proposerModelId,
  };
}

/** The `ProposerStatistics` that a message tells of. */
export function proposerStatistics(
  message: runtimePb.ProposerStatistics,
): values.ProposerStatistics {
  return {
    nodeId: message.nodeId,
    modelId: message.modelId,
    blockCount: message.blockCount,
    draftedCount: message.draftedCount,
    acceptedCount: message.acceptedCount,
    committedCount: message.committedCount,
    seconds: message.seconds,
  };
}

/** The `SpeculationStatistics` that a message tells of. */
export function speculationStatistics(
  message = create(runtimePb.SpeculationStatisticsSchema),
): values.SpeculationStatistics {
  return {
    blockCount: message.blockCount,
    draftedCount: message.draftedCount,
    acceptedCount: message.acceptedCount,
    verifyForwardCount: message.verifyForwardCount,
    acceptanceLength: message.acceptanceLength,
    roundTripSecondsP50: message.roundTripSecondsP50,
    roundTripSecondsP99: message.roundTripSecondsP99,
    faults: message.faults.map(draftFault),
    dropReason: message.dropReason ? dropReason(message.dropReason) : null,
    aheadHitCount: message.aheadHitCount,
    aheadMissCount: message.aheadMissCount,
    proposerNodeId: message.proposerNodeId,
    proposerModelId: message.proposerModelId,
    proposers: message.proposers.map(proposerStatistics),
    hedgeCount: message.hedgeCount,
    hedgeWonCount: message.hedgeWonCount,
    forbiddenCount: message.forbiddenCount,
  };
}

/** The `LinkChange` that a message tells of. */
export function linkChange(message: runtimePb.LinkChange): values.LinkChange {
  return {
    startSeconds: message.startSeconds,
    purpose: linkPurpose(message.purpose),
    transport: transport(message.transport),
    generation: message.generation,
    reason: message.reason,
    peerNodeId: message.peerNodeId,
  };
}

/** The `GenerationDone` that a message tells of. */
export function generationDone(message: runtimePb.GenerateDone): values.GenerationDone {
  return {
    stopReason: stopReason(message.stopReason),
    generatedTokenCount: message.generatedTokenCount,
    historyLength: Number(message.historyLength),
    timings: timings(message.timings),
    speculation: speculationStatistics(message.speculation),
    timeline: message.timeline.map(blockTiming),
    seed: message.seed,
    restorerRebuildCount: message.restorerRebuildCount,
    linkChanges: message.linkChanges.map(linkChange),
    forgottenTokenCount: Number(message.forgottenTokenCount),
    recomputedTokenCount: Number(message.recomputedTokenCount),
    kvQuality: kvQuality(message.kvQuality),
  };
}

/** The `RestorerInfo` that a message tells of. */
export function restorerInfo(message: runtimePb.RestorerInfo): values.RestorerInfo {
  const { restorer = create(placementPb.RestorerSchema) } = message;
  return {
    kind: restorerKind(restorer.kind),
    modelId: restorer.modelId,
    digest: message.digest,
    nodeId: restorer.nodeId,
    qualityWhenShort: kvQuality(restorer.qualityWhenShort),
    nodeName: message.nodeName,
    evictedTokenCount: Number(message.evictedTokenCount),
    evictedBytes: Number(message.evictedBytes),
    rebuildCount: message.rebuildCount,
    lost: message.lost,
    archives: message.archives.map(archiveRange),
    ownBytes: Number(message.ownBytes),
    auditedAnswerCount: Number(message.auditedAnswerCount),
    doubtfulFrom: Number(message.doubtfulFrom),
    doubtfulEnd: Number(message.doubtfulEnd),
    quality: kvQuality(restorer.quality),
    codec: restorer.codec,
  };
}

/** The `InvariantCount` that a message tells of. */
export function invariantCount(message: runtimePb.InvariantCount): values.InvariantCount {
  return {
    invariant: message.invariant,
    checkCount: Number(message.checkCount),
    violationCount: Number(message.violationCount),
  };
}

/** The `SessionInfo` that a message tells of. */
export function sessionInfo(message = create(runtimePb.SessionInfoSchema)): values.SessionInfo {
  return {
    sessionId: message.sessionId,
    modelId: message.modelId,
    clientLabel: message.clientLabel,
    historyLength: Number(message.historyLength),
    kvBytes: Number(message.kvBytes),
    residentTokenCount: Number(message.residentTokenCount),
    kvStrategy: kvStrategy(message.kvStrategy),
    sinkTokens: message.sinkTokens,
    windowTokens: message.windowTokens,
    state: sessionState(message.state),
    idleSeconds: message.idleSeconds,
    ttlSeconds: message.ttlSeconds,
    ageSeconds: message.ageSeconds,
    plan: plan(message.plan),
    dropReason: message.dropReason ? dropReason(message.dropReason) : null,
    forwardCount: Number(message.forwardCount),
    restorer: message.restorer ? restorerInfo(message.restorer) : null,
    invariants: message.invariants.map(invariantCount),
    forgottenTokenCount: Number(message.forgottenTokenCount),
    recomputedTokenCount: Number(message.recomputedTokenCount),
    computedTokenCount: Number(message.computedTokenCount),
  };
}

/** The `SessionActivity` that a message tells of. */
export function sessionActivity(message: runtimePb.SessionActivity): values.SessionActivity {
  return {
    session: sessionInfo(message.session),
    blocks: message.blocks.map(blockTiming),
    tokensPerSecond: message.tokensPerSecond,
    generationCount: message.generationCount,
    generatedTokenCount: Number(message.generatedTokenCount),
    prefilledTokenCount: Number(message.prefilledTokenCount),
    prefillSeconds: message.prefillSeconds,
    draftedCount: Number(message.draftedCount),
    acceptedCount: Number(message.acceptedCount),
    verifyForwardCount: Number(message.verifyForwardCount),
    draftSeconds: message.draftSeconds,
    wireSeconds: message.wireSeconds,
    waitSeconds: message.waitSeconds,
    verifySeconds: message.verifySeconds,
    linkChanges: message.linkChanges.map(linkChange),
    stopReason: message.stopReason ? stopReason(message.stopReason) : null,
  };
}

/** The `SessionsSnapshot` that a message tells of. */
export function sessionsSnapshot(message: runtimePb.SessionsSnapshot): values.SessionsSnapshot {
  return {
    type: "snapshot",
    sessions: message.sessions.map(sessionActivity),
  };
}

/** The `EndedSession` that a message tells of. */
export function endedSession(message: runtimePb.EndedSession): values.EndedSession {
  return {
    type: "ended",
    sessionId: message.sessionId,
    outcome: sessionOutcome(message.outcome),
  };
}

/** The `TextVector` that a message tells of. */
export function textVector(message: runtimePb.EmbedResponse): values.TextVector {
  return {
    values: message.values,
    model: modelOffer(message.model),
  };
}

/** The `ArchiveOffer` that a message tells of. */
export function archiveOffer(message: capabilityPb.ArchiveOffer): values.ArchiveOffer {
  return {
    capacityBytes: Number(message.capacityBytes),
    freeBytes: Number(message.freeBytes),
    port: message.port,
    arithmetic: message.arithmetic,
  };
}

/** The `Card` that a message tells of. */
export function card(message = create(capabilityPb.CapabilityCardSchema)): values.Card {
  const { accelerator = create(capabilityPb.AcceleratorSchema) } = message;
  return {
    nodeId: message.nodeId,
    name: message.name,
    fleetName: message.fleetName,
    bootId: message.bootId,
    incarnation: Number(message.incarnation),
    sequence: message.sequence,
    publicKey: Buffer.from(message.publicKey).toString("hex"),
    addresses: message.addresses,
    platform: message.platform,
    acceleratorKind: accelerator.kind,
    acceleratorName: accelerator.name,
    memoryTotalBytes: Number(message.memoryTotalBytes),
    memoryFreeBytes: Number(message.memoryFreeBytes),
    softwareVersion: message.softwareVersion,
    protocolMin: message.protocolMin,
    protocolMax: message.protocolMax,
    models: message.models.map(modelOffer),
    ringAddress: message.ringAddress,
    announcedAtUnix: message.announcedAtUnix,
    ttlSeconds: message.ttlSeconds,
    archive: message.archive ? archiveOffer(message.archive) : null,
    httpAddress: message.httpAddress,
    hostId: message.hostId,
    certificate: Buffer.from(message.certificate).toString("hex"),
    httpsPort: message.httpsPort,
    applicationsPort: message.applicationsPort,
    acceleratorMemoryTotalBytes: Number(message.acceleratorMemoryTotalBytes),
    acceleratorMemoryFreeBytes: Number(message.acceleratorMemoryFreeBytes),
    acceleratorDtypes: message.acceleratorDtypes,
  };
}

/** The `PeerLink` that a message tells of. */
export function peerLink(message: capabilityPb.PeerLink): values.PeerLink {
  return {
    nodeId: message.nodeId,
    roundTripSeconds: message.roundTripSeconds,
    breakerOpen: message.breakerOpen,
    archiveWaitSeconds: message.archiveWaitSeconds ? message.archiveWaitSeconds : null,
    address: message.address,
    breakerOpenModels: message.breakerOpenModels,
  };
}

/** The `NodeLoad` that a message tells of. */
export function nodeLoad(message = create(capabilityPb.NodeLoadSchema)): values.NodeLoad {
  return {
    sessionCount: message.sessionCount,
    generatingCount: message.generatingCount,
    draftStreamCount: message.draftStreamCount,
    kvBytes: Number(message.kvBytes),
    kvBudgetBytes: Number(message.kvBudgetBytes),
    memoryFreeBytes: Number(message.memoryFreeBytes),
    archiveCount: message.archiveCount,
    archiveBytes: Number(message.archiveBytes),
    archiveBudgetBytes: Number(message.archiveBudgetBytes),
    cpuShare: message.cpuShare ?? null,
    processCpuShare: message.processCpuShare ?? null,
  };
}

/** The `MeasuredAcceptance` that a message tells of. */
export function measuredAcceptance(
  message: capabilityPb.MeasuredAcceptance,
): values.MeasuredAcceptance {
  return {
    verifierModelId: message.verifierModelId,
    proposerModelId: message.proposerModelId,
    acceptanceRate: message.acceptanceRate,
    draftedCount: Number(message.draftedCount),
    acceptanceRateLow: message.acceptanceRateLow,
    acceptanceRateHigh: message.acceptanceRateHigh,
    sessionCount: message.sessionCount,
  };
}

/** The `TensorLink` that a message tells of. */
export function tensorLink(message: capabilityPb.TensorLinkStatus): values.TensorLink {
  return {
    peerNodeId: message.peerNodeId,
    purpose: linkPurpose(message.purpose),
    transport: transport(message.transport),
    generation: message.generation,
    bytesPerSecond: message.bytesPerSecond,
    reason: message.reason,
    changedSecondsAgo: message.changedSecondsAgo,
    isCaller: message.isCaller,
    tensorCount: Number(message.tensorCount),
    byteCount: Number(message.byteCount),
    demotionCount: message.demotionCount,
  };
}

/** The `SeedFault` that a message tells of. */
export function seedFault(message: capabilityPb.SeedFault): values.SeedFault {
  return {
    address: message.address,
    reason: message.reason,
    message: message.message,
    mend: message.mend,
    sinceSeconds: message.sinceSeconds,
    attemptCount: message.attemptCount,
  };
}

/** The `Node` that a message tells of. */
export function node(message = create(capabilityPb.GetNodeResponseSchema)): values.Node {
  return {
    card: card(message.card),
    links: message.links.map(peerLink),
    load: nodeLoad(message.load),
    acceptances: message.acceptances.map(measuredAcceptance),
    metricsAddress: message.metricsAddress,
    draining: message.draining,
    tensorLinks: message.tensorLinks.map(tensorLink),
    httpAddress: message.httpAddress,
    startedAtUnix: message.startedAtUnix,
    seedFaults: message.seedFaults.map(seedFault),
  };
}

/** The `LimitUse` that a message tells of. */
export function limitUse(message: capabilityPb.LimitUse): values.LimitUse {
  return {
    name: message.name,
    unit: limitUnit(message.unit),
    limit: message.limit,
    used: message.used,
    refusedFullCount: Number(message.refusedFullCount),
    refusedShareCount: Number(message.refusedShareCount),
    why: message.why,
    isCounted: message.isCounted,
  };
}

/** The `MeasuredCodec` that a message tells of. */
export function measuredCodec(message: capabilityPb.MeasuredCodec): values.MeasuredCodec {
  return {
    modelId: message.modelId,
    weightsDigest: message.weightsDigest,
    arithmetic: message.arithmetic,
    codec: message.codec,
    bits: message.bits,
    positionCount: message.positionCount,
    divergenceNats: message.divergenceNats,
    errorNats: message.errorNats,
    qualities: message.qualities.map(kvQuality),
    reasons: message.reasons,
    measuredAtUnix: message.measuredAtUnix,
    isSettled: message.isSettled,
  };
}

/** The `SpanAttribute` that a message tells of. */
export function spanAttribute(message: capabilityPb.SpanAttribute): values.SpanAttribute {
  return {
    name: message.name,
    value: message.value,
  };
}

/** The `Span` that a message tells of. */
export function span(message: capabilityPb.Span): values.Span {
  return {
    traceId: message.traceId,
    spanId: message.spanId,
    parentSpanId: message.parentSpanId,
    name: message.name,
    startedAtUnix: message.startedAtUnix,
    durationSeconds: message.durationSeconds,
    requestId: message.requestId,
    fault: message.fault,
    attributes: message.attributes.map(spanAttribute),
  };
}

/** The `NodeSpans` that a message tells of. */
export function nodeSpans(message: capabilityPb.GetSpansResponse): values.NodeSpans {
  return {
    nodeId: message.nodeId,
    nodeName: message.nodeName,
    spans: message.spans.map(span),
  };
}

/** The `NodeSample` that a message tells of. */
export function nodeSample(message: capabilityPb.NodeSample): values.NodeSample {
  return {
    atUnix: message.atUnix,
    tokensPerSecond: message.tokensPerSecond,
    prefillTokensPerSecond: message.prefillTokensPerSecond,
    sessionCount: message.sessionCount,
    generatingCount: message.generatingCount,
    draftStreamCount: message.draftStreamCount,
    kvBytes: Number(message.kvBytes),
    memoryFreeBytes: Number(message.memoryFreeBytes),
    archiveBytes: Number(message.archiveBytes),
    draftedCount: message.draftedCount,
    acceptedCount: message.acceptedCount,
    verifyForwardCount: message.verifyForwardCount,
    draftsPerSecond: message.draftsPerSecond,
    linkBytesPerSecond: message.linkBytesPerSecond,
    cpuShare: message.cpuShare ?? null,
    processCpuShare: message.processCpuShare ?? null,
    acceleratorShare: message.acceleratorShare ?? null,
  };
}

/** The `NodeEvent` that a message tells of. */
export function nodeEvent(message: capabilityPb.NodeEvent): values.NodeEvent {
  return {
    number: Number(message.number),
    atUnix: message.atUnix,
    severity: eventSeverity(message.severity),
    kind: message.kind,
    message: message.message,
    mend: message.mend,
    subjectNodeId: message.subjectNodeId,
    sessionId: message.sessionId,
  };
}

/** The `Transfer` that a message tells of. */
export function transfer(message: capabilityPb.Transfer): values.Transfer {
  return {
    transferId: message.transferId,
    kind: transferKind(message.kind),
    modelId: message.modelId,
    state: transferState(message.state),
    doneBytes: Number(message.doneBytes),
    totalBytes: Number(message.totalBytes),
    bytesPerSecond: message.bytesPerSecond,
    remainingSeconds: message.remainingSeconds,
    startedAtUnix: message.startedAtUnix,
    error: message.error,
  };
}

/** The `NodeHistory` that a message tells of. */
export function nodeHistory(message: capabilityPb.NodeHistory): values.NodeHistory {
  return {
    type: "history",
    node: node(message.node),
    sampleSeconds: message.sampleSeconds,
    samples: message.samples.map(nodeSample),
    events: message.events.map(nodeEvent),
    transfers: message.transfers.map(transfer),
  };
}

/** The `LoadProgress` that a message tells of. */
export function loadProgress(message: model_servicePb.LoadProgress): values.LoadProgress {
  return {
    phase: loadPhase(message.phase),
    transfer: message.transfer ? transfer(message.transfer) : null,
  };
}

/** The `LoadedModel` that a message tells of. */
export function loadedModel(message: model_servicePb.LoadedModel): values.LoadedModel {
  return {
    offer: modelOffer(message.offer),
    wasServed: message.wasServed,
  };
}

/** The `UnloadedModel` that a message tells of. */
export function unloadedModel(message: model_servicePb.UnloadModelResponse): values.UnloadedModel {
  return {
    modelId: message.modelId,
    role: role(message.role),
    memoryFreeBytes: Number(message.memoryFreeBytes),
  };
}

/** The `PullSource` that a message tells of. */
export function pullSource(message: model_servicePb.PullSource): values.PullSource {
  return {
    nodeId: message.nodeId,
    nodeName: message.nodeName,
    doneBytes: Number(message.doneBytes),
    fault: message.fault,
  };
}

/** The `PullProgress` that a message tells of. */
export function pullProgress(message: model_servicePb.PullProgress): values.PullProgress {
  return {
    phase: pullPhase(message.phase),
    transfer: message.transfer ? transfer(message.transfer) : null,
    sources: message.sources.map(pullSource),
  };
}

/** The `PulledModel` that a message tells of. */
export function pulledModel(message: model_servicePb.PulledModel): values.PulledModel {
  return {
    modelId: message.modelId,
    byteCount: Number(message.byteCount),
    fileCount: message.fileCount,
    filesDigest: message.filesDigest,
    wasThere: message.wasThere,
    sources: message.sources.map(pullSource),
  };
}

/** The `RemovedModel` that a message tells of. */
export function removedModel(message: model_servicePb.RemoveModelResponse): values.RemovedModel {
  return {
    modelId: message.modelId,
    byteCount: Number(message.byteCount),
  };
}

/** The `StoredModel` that a message tells of. */
export function storedModel(message: model_servicePb.StoredModel): values.StoredModel {
  return {
    modelId: message.modelId,
    byteCount: Number(message.byteCount),
    filesDigest: message.filesDigest,
    isWhole: message.isWhole,
    isServed: message.isServed,
    pulledAtUnix: message.pulledAtUnix,
    sourceNames: message.sourceNames,
  };
}
