/** How keys and values are asked for, as messages of `kakeya.v1`. */

import { create } from "@bufbuild/protobuf";

import {
  KvStrategySchema,
  RestorerAttend,
  RestorerAttendSchema,
  RestorerKind as WireRestorerKind,
  RestorerKindSchema,
  RestorerSchema,
  KvStrategy as WireKvStrategy,
  type Restorer,
} from "../generated/kakeya/v1/placement_pb.js";
import {
  ATTEND_PLACES,
  KV_STRATEGIES,
  RESTORER_KINDS,
  type AttendAt,
  type RestorerKind,
} from "../generated/values.js";
import { enumNumber } from "./numbers.js";

/** How a session that restores what it evicts does so. All are optional. */
export interface RestorerOptions {
  /** What is kept of evicted positions; "archive" unless given. */
  readonly restorer?: RestorerKind | undefined;
  /** With "projection": the drafter whose learned map is used. */
  readonly restorerModel?: string | undefined;
  /** The archive's node; the nearest with room unless given. */
  readonly restorerNodeId?: string | undefined;
  /** Where queries attend to evicted positions; "archive" unless given. */
  readonly attend?: AttendAt | undefined;
}

/**
 * The wire's number of a strategy, undefined for the node's choice; throws BadRequest
 * for one that does not exist.
 */
export function kvStrategyNumber(strategy: string | undefined): WireKvStrategy {
  return strategy === undefined
    ? WireKvStrategy.UNSPECIFIED
    : enumNumber(KvStrategySchema, strategy, KV_STRATEGIES, "kvStrategy");
}

/**
 * What restores; undefined when nothing is asked for. Throws BadRequest for a kind
 * or a place that does not exist.
 */
export function restorer(options: RestorerOptions): Restorer | undefined {
  const { restorer: kind, restorerModel, restorerNodeId, attend } = options;
  if (kind === undefined && !restorerModel && !restorerNodeId && attend === undefined) {
    return undefined;
  }
  return create(RestorerSchema, {
    kind:
      kind === undefined
        ? WireRestorerKind.ARCHIVE
        : enumNumber(RestorerKindSchema, kind, RESTORER_KINDS, "restorer"),
    modelId: restorerModel ?? "",
    nodeId: restorerNodeId ?? "",
    attend:
      attend === undefined
        ? RestorerAttend.UNSPECIFIED
        : enumNumber(RestorerAttendSchema, attend, ATTEND_PLACES, "attend"),
  });
}
