/** The fleet as one node sees it. */

import { create } from "@bufbuild/protobuf";

import type { Connection } from "./connection.js";
import { UnexpectedError } from "./errors.js";
import { WatchNodeRequestSchema } from "./generated/kakeya/v1/capability_pb.js";
import { Role as WireRole, RoleSchema } from "./generated/kakeya/v1/model_pb.js";
import {
  LoadModelRequestSchema,
  PullModelRequestSchema,
} from "./generated/kakeya/v1/model_service_pb.js";
import { PlanRequestSchema } from "./generated/kakeya/v1/placement_pb.js";
import {
  ROLES,
  type KvStrategy,
  type LimitUse,
  type MeasuredCodec,
  type Node,
  type NodeSpans,
  type Plan,
  type RemovedModel,
  type Role,
  type StoredModel,
  type UnloadedModel,
} from "./generated/values.js";
import {
  limitUse,
  measuredCodec,
  node,
  nodeSpans,
  plan,
  removedModel,
  storedModel,
  unloadedModel,
} from "./generated/wire.js";
import { ModelLoad } from "./model-load.js";
import { ModelPull } from "./model-pull.js";
import type { FleetEvent, FleetSnapshot, NodeActivity, NodeStatus } from "./values/watch.js";
import { Watch } from "./watch.js";
import * as ranges from "./ranges.js";
import { build, enumNumber } from "./wire/numbers.js";
import { kvStrategyNumber, restorer, type RestorerOptions } from "./wire/restorer.js";
import { fleetEvents, hasMore, nodeActivity } from "./wire/watch.js";

/** What every call takes: the signal's reason is thrown when it is aborted. */
export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

/** What a plan is asked for. */
export interface PlanOptions extends RestorerOptions, CallOptions {
  readonly verifierModel: string;
  /** Any unless given. */
  readonly proposerModel?: string | undefined;
  /** Any unless given. */
  readonly proposerNodeId?: string | undefined;
  /** Any unless given. */
  readonly verifierNodeId?: string | undefined;
  /** The longest history to plan for. */
  readonly contextTokens?: number | undefined;
  /** The node's choice unless given, as for a session; the plan tells. */
  readonly kvStrategy?: KvStrategy | undefined;
  /** The node's choice unless given. */
  readonly sinkTokens?: number | undefined;
  /** The node's choice unless given. */
  readonly windowTokens?: number | undefined;
  /** Drafted tokens a block; the planner's choice unless given. */
  readonly blockSize?: number | undefined;
  /** Plan the verifier alone. */
  readonly withoutProposer?: boolean | undefined;
}

/** How a model is to be served. */
export interface LoadOptions extends CallOptions {
  /** "verifier" unless given, or "proposer". */
  readonly role?: Role | undefined;
  /** "auto", "bf16", "int8" or "int4"; what the node was started with unless given. */
  readonly weights?: string | undefined;
  /** Without a session, after which it is unloaded; 0 for never. By the node's settings unless given. */
  readonly unloadAfterSeconds?: number | undefined;
}

/** Where a model's files are to come from. */
export interface PullOptions extends CallOptions {
  /** Ids of nodes, at most 8; all that have the model, or else the hub, unless given. */
  readonly sources?: readonly string[] | undefined;
}

/** What is to be served no more. */
export interface UnloadOptions extends CallOptions {
  /** Says which where the model is served in two. */
  readonly role?: Role | undefined;
  /** For running generations to end: 5 unless given, at most 3,600. */
  readonly drainSeconds?: number | undefined;
}

/** The fleet as the client's node sees it: `client.fleet`. */
export class Fleet {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** All nodes that are known, and the fleet's name. Throws TransportError. */
  async snapshot(options: CallOptions = {}): Promise<FleetSnapshot> {
    for await (const event of this.watch(options)) {
      if (event.type === "snapshot") {
        return event;
      }
    }
    throw new UnexpectedError("the node ended the watch without a snapshot");
  }

  /** All nodes that are known, by name. Throws TransportError. */
  async nodes(options: CallOptions = {}): Promise<readonly NodeStatus[]> {
    return (await this.snapshot(options)).nodes;
  }

  /** A snapshot, then every change, until the iteration is left. */
  watch(options: CallOptions = {}): Watch<FleetEvent> {
    const { capability } = this.#connection;
    return new Watch(
      this.#connection,
      {
        open: (terms) => capability.watchFleet({ inParts: true }, terms),
        event: fleetEvents(),
        hasMore,
      },
      options.signal,
    ) as Watch<FleetEvent>;
  }

  /**
   * What the client's node does, until the iteration is left.
   *
   * The samples of the last `historySeconds` (at most 900; none unless given),
   * events and transfers first; then a sample a second, events and transfers as
   * they happen, and the node whenever it changed. Throws BadRequest; the iteration
   * WatcherTooSlow, TransportError.
   */
  watchNode(
    options: CallOptions & { historySeconds?: number | undefined } = {},
  ): Watch<NodeActivity> {
    const { capability } = this.#connection;
    const { historySeconds = 0 } = options;
    const request = create(WatchNodeRequestSchema, {
      historySeconds: ranges.number(
        "historySeconds",
        historySeconds,
        0,
        ranges.MAX_HISTORY_SECONDS,
      ),
    });
    return new Watch(
      this.#connection,
      { open: (terms) => capability.watchNode(request, terms), event: nodeActivity },
      options.signal,
    ) as Watch<NodeActivity>;
  }

  /** The client's node as it sees itself. Throws TransportError. */
  async node(options: CallOptions = {}): Promise<Node> {
    const { capability, timeouts } = this.#connection;
    const response = await this.#connection.unary(
      (terms) => capability.getNode({}, terms),
      timeouts.unary,
      { idempotent: true, signal: options.signal },
    );
    return node(response);
  }

  /**
   * What others may have of the client's node at once, and what is taken of it. Throws
   * TransportError.
   */
  async limits(options: CallOptions = {}): Promise<readonly LimitUse[]> {
    const { capability, timeouts } = this.#connection;
    const response = await this.#connection.unary(
      (terms) => capability.listLimits({}, terms),
      timeouts.unary,
      { idempotent: true, signal: options.signal },
    );
    return response.limits.map(limitUse);
  }

  /**
   * What the client's node measured of the codecs that pack sessions of its models, by model,
   * then from most bits to fewest. Throws TransportError.
   */
  async codecs(options: CallOptions = {}): Promise<readonly MeasuredCodec[]> {
    const { capability, timeouts } = this.#connection;
    const response = await this.#connection.unary(
      (terms) => capability.listCodecs({}, terms),
      timeouts.unary,
      { idempotent: true, signal: options.signal },
    );
    return response.codecs.map(measuredCodec);
  }

  /**
   * Makes the client's node forget what it measured of a model's codecs, of all without one.
   *
   * Returns of how many something was known. Open sessions keep their codec. Throws
   * ModelNotFound, NotLoopback, TransportError.
   */
  async resetCodecs(model = "", options: CallOptions = {}): Promise<number> {
    const { capability, timeouts } = this.#connection;
    const response = await this.#connection.unary(
      (terms) => capability.resetCodecs({ modelId: model }, terms),
      timeouts.unary,
      { idempotent: true, signal: options.signal },
    );
    return response.codecCount;
  }

  /**
   * What the client's node did for one request, as far as it still knows.
   *
   * `request` is the id of a trace, 32 hexadecimal digits, or the `requestId` of a call.
   * Throws BadRequest, TransportError.
   */
  async spans(request: string, options: CallOptions = {}): Promise<NodeSpans> {
    const { capability, timeouts } = this.#connection;
    const asked = { request: ranges.name("request", request) };
    const response = await this.#connection.unary(
      (terms) => capability.getSpans(asked, terms),
      timeouts.unary,
      { idempotent: true, signal: options.signal },
    );
    return nodeSpans(response);
  }

  /**
   * The pair that a session would get, with reasons; starts nothing.
   *
   * Throws ModelNotFound, NoPlacement, BadRequest, TransportError.
   */
  async plan(options: PlanOptions): Promise<Plan> {
    const { placement, timeouts } = this.#connection;
    const request = build(PlanRequestSchema, {
      verifierModel: options.verifierModel,
      proposerModel: options.proposerModel ?? "",
      proposerNodeId: options.proposerNodeId ?? "",
      verifierNodeId: options.verifierNodeId ?? "",
      contextTokens: ranges.whole("contextTokens", options.contextTokens ?? 0, 0),
      kvStrategy: kvStrategyNumber(options.kvStrategy),
      sinkTokens: ranges.whole("sinkTokens", options.sinkTokens ?? 0, 0),
      windowTokens: ranges.whole("windowTokens", options.windowTokens ?? 0, 0),
      blockSize: ranges.whole("blockSize", options.blockSize ?? 0, 0, ranges.MAX_DRAFTED_TOKENS),
      withoutProposer: options.withoutProposer ?? false,
      ...optional("restorer", restorer(options)),
    });
    const response = await this.#connection.unary(
      (terms) => placement.plan(request, terms),
      timeouts.unary,
      { idempotent: true, signal: options.signal },
    );
    return plan(response.plan);
  }

  /**
   * Has the client's node serve one more model, while everything else goes on.
   *
   * `model` is what `fleet join --serve` takes: a shipped or published model, one that was pulled,
   * one of the hub; a path, absolute, only from the node's own machine. A model that is served
   * already is the answer at once. Throws BadRequest; the iteration ModelNotFound, NotLoopback,
   * NotPermitted, Draining, another error of what cannot be served, TransportError.
   */
  loadModel(model: string, options: LoadOptions = {}): ModelLoad {
    const role = roleNumber(options.role);
    const request = create(LoadModelRequestSchema, {
      model,
      role,
      weights: options.weights ?? "",
      ...optional("unloadAfterSeconds", unloadAfter(options.unloadAfterSeconds)),
    });
    return new ModelLoad(this.#connection, request, options.signal);
  }

  /**
   * Has the client's node serve a model no more; resolves once its memory is free.
   *
   * Sessions with `resume` go on elsewhere. Throws ModelNotFound, ModelLoading, BadRequest,
   * NotLoopback, NotPermitted, Draining, TransportError.
   */
  async unloadModel(model: string, options: UnloadOptions = {}): Promise<UnloadedModel> {
    const { models, timeouts } = this.#connection;
    const { drainSeconds: asked = 5 } = options;
    const drainSeconds = ranges.number("drainSeconds", asked, 0, ranges.MAX_DRAIN_SECONDS);
    const request = { modelId: model, role: roleNumber(options.role), drainSeconds };
    const response = await this.#connection.unary(
      (terms) => models.unloadModel(request, terms),
      drainSeconds + timeouts.streamIdle,
      { signal: options.signal },
    );
    return unloadedModel(response);
  }

  /**
   * Has the client's node bring a model's files to its disk, while everything else goes on.
   *
   * `model` is its name on the nodes that have it, or on the hub, never a path. One that is there
   * already is the answer at once. The iteration throws ModelNotFound, NodeNotFound, NotLoopback,
   * NotPermitted, Draining, KakeyaError with MODEL_NOT_COPIED, MODEL_CACHE_UNWRITABLE or
   * MODEL_IN_USE, TransportError.
   */
  pullModel(model: string, options: PullOptions = {}): ModelPull {
    const request = create(PullModelRequestSchema, {
      model,
      sourceNodeIds: [...(options.sources ?? [])],
    });
    return new ModelPull(this.#connection, request, options.signal);
  }

  /**
   * Removes from the disk of the client's node what a pull brought; one that runs ends.
   *
   * Throws NotFound with MODEL_NOT_KEPT for what no pull brought, FailedPrecondition with
   * MODEL_IN_USE for what is served or loaded, BadRequest, NotLoopback, NotPermitted,
   * TransportError.
   */
  async removeModel(model: string, options: CallOptions = {}): Promise<RemovedModel> {
    const { models, timeouts } = this.#connection;
    const response = await this.#connection.unary(
      (terms) => models.removeModel({ modelId: model }, terms),
      timeouts.unary + timeouts.streamIdle,
      { signal: options.signal },
    );
    return removedModel(response);
  }

  /** What pulls brought to the disk of the client's node, by name. Throws TransportError. */
  async storedModels(options: CallOptions = {}): Promise<readonly StoredModel[]> {
    const { models, timeouts } = this.#connection;
    const response = await this.#connection.unary(
      (terms) => models.listModels({}, terms),
      timeouts.unary,
      { idempotent: true, signal: options.signal },
    );
    return response.models.map(storedModel);
  }

  /**
   * Makes the client's node leave the fleet; gives its id.
   *
   * Running generations may take `drainSeconds`, 5 unless given and at most 3,600, to
   * end. Throws BadRequest, NotLoopback, TransportError.
   */
  async leave(options: CallOptions & { drainSeconds?: number | undefined } = {}): Promise<string> {
    const { capability, timeouts } = this.#connection;
    const { drainSeconds: asked = 5 } = options;
    const drainSeconds = ranges.number("drainSeconds", asked, 0, ranges.MAX_DRAIN_SECONDS);
    const response = await this.#connection.unary(
      (terms) => capability.leave({ drainSeconds }, terms),
      timeouts.unary,
      { signal: options.signal },
    );
    return response.nodeId;
  }
}

function unloadAfter(seconds: number | undefined): number | undefined {
  const most = ranges.MAX_UNLOAD_AFTER_SECONDS;
  return seconds === undefined ? undefined : ranges.number("unloadAfterSeconds", seconds, 0, most);
}

function roleNumber(role: Role | undefined): WireRole {
  return role === undefined ? WireRole.UNSPECIFIED : enumNumber(RoleSchema, role, ROLES, "role");
}

function optional<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
  return value === undefined ? {} : ({ [key]: value } as { [P in K]?: V });
}
