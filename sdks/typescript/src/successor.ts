/** A session that was lost, opened anew: on another node, or on its own that forgot it. */

import { clone, create } from "@bufbuild/protobuf";

import type { Connection } from "./connection.js";
import {
  ArchiveFull,
  Draining,
  GroupLost,
  HistoryLengthMismatch,
  KakeyaError,
  ModelLoading,
  ModelNotFound,
  NoArchive,
  NodeNotFound,
  NodeUnreachable,
  NoPlacement,
  SessionNotFound,
  TransportError,
  UnexpectedError,
} from "./errors.js";
import {
  ModelOfferSchema,
  type ModelOffer as ModelOfferMessage,
} from "./generated/kakeya/v1/model_pb.js";
import {
  CreateSessionRequestSchema,
  SpeculationMode,
  SpeculationSchema,
  type CreateSessionRequest,
} from "./generated/kakeya/v1/runtime_pb.js";
import type { History } from "./history.js";
import { MAX_APPEND_TOKENS, Place, requestId, traced } from "./place.js";
import type { Roster } from "./roster.js";
import { appendSeconds } from "./timeouts.js";
import type { ModelOffer } from "./generated/values.js";
import type { NodeStatus } from "./values/watch.js";

/** How a session was asked for, and how others of its kind are opened. */
export interface Opening {
  readonly request: CreateSessionRequest;
  readonly roster: Roster;
}

/** Whether the node of the session left, or cannot be reached: it may be back soon. */
export function mayReturn(error: KakeyaError): boolean {
  return isOneOf(error, [Draining, NodeUnreachable]);
}

/** What nodes and the network say while the one that could go on is being started. */
export function isNobodyYet(error: KakeyaError): boolean {
  return isOneOf(error, [NoPlacement, TransportError, Draining, ModelNotFound, ModelLoading]);
}

/** Whether the session is gone, or its node is, or is going: it must be opened anew. */
export function isLost(error: unknown): error is KakeyaError {
  return isOneOf(error, [TransportError, Draining, GroupLost, SessionNotFound]);
}

/**
 * Opens what was `asked` for with the first of `history`, as many as one request takes.
 *
 * How many of them the session has is `opened.historyLength`: none at nodes that do not
 * know first tokens. Sent again when the network failed and there is a request id.
 */
export async function openSession(
  connection: Connection,
  asked: CreateSessionRequest,
  history: readonly number[],
  terms: { traceparent: string; signal?: AbortSignal | undefined },
): Promise<Place> {
  const { runtime, timeouts } = connection;
  const { traceparent, signal } = terms;
  const request = clone(CreateSessionRequestSchema, asked);
  request.initialTokenIds = history.slice(0, MAX_APPEND_TOKENS);
  const count = request.initialTokenIds.length;
  const opened = await connection.unary(
    (each) => runtime.createSession(request, traced(each, traceparent)),
    count > 0 ? appendSeconds(timeouts, count) : timeouts.unary,
    { idempotent: request.requestId !== "", signal },
  );
  if (count > 0 && opened.historyLength > count) {
    throw new HistoryLengthMismatch(
      `the session of this request id has ${opened.historyLength} tokens already, ` +
        `${count} were given; open it under another request id`,
    );
  }
  return new Place(connection, opened, opened.sessionId, traceparent);
}

/**
 * The session `lost`, opened anew on a live node, with the same history.
 *
 * The node must serve the same weights. Nodes that compute alike, by number format,
 * back end, arithmetic and threads of a forward, come first, then those alike but for the
 * threads, then those alike but for the arithmetic, alive ones before suspects, then the
 * nearest. The node that had the session is asked before all others when it has `forgotten`
 * it, else not at all. Keys and values are kept there as they were, also where the first
 * node chose how. Throws the error of the last node that was tried, and NoPlacement when
 * there is none.
 */
export async function succeed(
  lost: Place,
  opening: Opening,
  history: History,
  { forgotten = false, signal }: { forgotten?: boolean; signal?: AbortSignal | undefined } = {},
): Promise<Place> {
  const offer = lost.opened.model ?? create(ModelOfferSchema);
  const { address } = lost.connection;
  const nodeId = lost.opened.plan?.verifier?.nodeId;
  const nodes = await opening.roster.nodes(address, signal);
  let failure: KakeyaError = new NoPlacement(
    `no ${forgotten ? "" : "other "}live node serves ${offer.modelId} with the same weights: ` +
      "start a second verifier, or wait for this one",
    { metadata: { weights_digest: offer.weightsDigest } },
  );
  const { ways } = opening.roster;
  const hadIt = (node: NodeStatus): boolean =>
    node.address === address || ways.to(node) === address || (!!nodeId && node.nodeId === nodeId);
  // The node that had it was called already, whichever of its ports others are told of.
  const way = (node: NodeStatus): string => ways.to(node) || (hadIt(node) ? address : "");
  const alike = keptAlike(lost, opening);
  const able = candidates(
    nodes.filter((node) => way(node)),
    offer,
  );
  const others = able.filter(({ node }) => !hadIt(node));
  const own = able.filter(({ node }) => hadIt(node));
  for (const { node, model } of forgotten ? [...own, ...others] : others) {
    try {
      const terms = { traceparent: lost.traceparent, signal };
      const connection = opening.roster.connection(way(node), node.nodeId);
      return await openThere(connection, model.modelId, offer, alike, history, terms);
    } catch (error) {
      if (!(error instanceof KakeyaError)) {
        throw error;
      }
      failure = error;
    }
  }
  throw failure;
}

/** The opening with the lost session's strategy and codec: another's stream would differ. */
function keptAlike(lost: Place, opening: Opening): Opening {
  const request = clone(CreateSessionRequestSchema, opening.request);
  // Nodes of an earlier version do not tell.
  request.kvStrategy = lost.opened.kvStrategy || request.kvStrategy;
  if (lost.opened.codec && request.restorer) {
    request.restorer.codec = lost.opened.codec;
  }
  return { ...opening, request };
}

interface Candidate {
  readonly node: NodeStatus;
  readonly model: ModelOffer;
}

function candidates(nodes: readonly NodeStatus[], offer: ModelOfferMessage): readonly Candidate[] {
  const rank = ({ node, model }: Candidate): readonly number[] => [
    Number(
      model.dtype !== offer.dtype ||
        model.backend !== offer.backend ||
        model.quantization !== offer.quantization,
    ),
    // Last bits of logits, which seldom decide a token: never worth another number format.
    Number(model.arithmetic !== offer.arithmetic),
    // Still more seldom of influence on a bit.
    Number(model.threadCount !== offer.threadCount),
    Number(node.liveness !== "alive"),
    node.roundTripSeconds ?? 0,
  ];
  return nodes
    .filter((node) => node.liveness === "alive" || node.liveness === "suspect")
    .flatMap((node) => node.models.map((model) => ({ node, model })))
    .filter(
      ({ model }) =>
        model.role === "verifier" &&
        offer.weightsDigest !== "" &&
        model.weightsDigest === offer.weightsDigest,
    )
    .sort((one, other) => {
      const [ours, theirs] = [rank(one), rank(other)];
      const at = ours.findIndex((value, index) => value !== theirs[index]);
      return at < 0 ? 0 : (ours[at] ?? 0) - (theirs[at] ?? 0);
    });
}

async function openThere(
  connection: Connection,
  modelId: string,
  offer: ModelOfferMessage,
  opening: Opening,
  history: History,
  terms: { traceparent: string; signal: AbortSignal | undefined },
): Promise<Place> {
  const place = await openAsFarAsPossible(
    connection,
    opening.request,
    modelId,
    history.ids(0, MAX_APPEND_TOKENS),
    terms,
  );
  try {
    if (place.opened.model?.weightsDigest !== offer.weightsDigest) {
      throw new UnexpectedError(
        `${connection.address} serves ${modelId} with other weights than its card says`,
      );
    }
    const first = Number(place.opened.historyLength);
    for (let start = first; start < history.length; start += MAX_APPEND_TOKENS) {
      await place.append(history.ids(start, start + MAX_APPEND_TOKENS), start, 0, 0, terms.signal);
    }
    return place;
  } catch (error) {
    await place.abandon();
    throw error;
  }
}

/**
 * Opens what was asked for, but for named helpers that are lost too.
 *
 * A proposer and an archive's place never change a token: a named one that cannot
 * be had any more gives way to any other, and a fixed proposer at last to the planner.
 */
async function openAsFarAsPossible(
  connection: Connection,
  asked: CreateSessionRequest,
  modelId: string,
  firstTokens: readonly number[],
  terms: { traceparent: string; signal: AbortSignal | undefined },
): Promise<Place> {
  const request = clone(CreateSessionRequestSchema, asked);
  request.modelId = modelId;
  for (;;) {
    request.requestId = requestId();
    try {
      return await openSession(connection, request, firstTokens, terms);
    } catch (error) {
      const { speculation, restorer } = request;
      if (isOneOf(error, [NoPlacement, ModelNotFound, NodeNotFound]) && speculation) {
        if (speculation.proposerNodeId) {
          speculation.proposerNodeId = "";
          continue;
        }
        if (speculation.mode === SpeculationMode.FIXED) {
          request.speculation = create(SpeculationSchema);
          continue;
        }
      }
      if (isOneOf(error, [NoArchive, ArchiveFull]) && restorer?.nodeId) {
        restorer.nodeId = "";
        continue;
      }
      throw error;
    }
  }
}

function isOneOf(error: unknown, kinds: readonly (typeof KakeyaError)[]): boolean {
  return kinds.some((kind) => error instanceof kind);
}
