/** How keys and values are asked for, as messages of `kakeya.v1`. */

import { create } from "@bufbuild/protobuf";

import {
  KvQuality as WireKvQuality,
  KvQualitySchema,
  KvStrategySchema,
  RestorerKind as WireRestorerKind,
  RestorerKindSchema,
  RestorerSchema,
  KvStrategy as WireKvStrategy,
  type Restorer,
} from "../generated/kakeya/v1/placement_pb.js";
import {
  KV_QUALITIES,
  KV_STRATEGIES,
  RESTORER_KINDS,
  type KvQuality,
  type RestorerKind,
} from "../generated/values.js";
import { enumNumber } from "./numbers.js";

/** How a session that restores what it evicts does so. All are optional. */
export interface RestorerOptions {
  /** A full session packs what it keeps itself: no restorer is meant unless one is named. */
  readonly kvStrategy?: string | undefined;
  /** What is kept of evicted positions; "archive" unless given. */
  readonly restorer?: RestorerKind | undefined;
  /** With "projection": the drafter whose learned map is used. */
  readonly restorerModel?: string | undefined;
  /** The archive's node; the nearest with room unless given. */
  readonly restorerNodeId?: string | undefined;
  /**
   * "lossless" unless given: how exactly keys and values behind the window are kept. "high" and
   * "economy" pack them, for 3.4 and 4.3 times the context a byte, of an archive ("restored")
   * or of the verifier's own memory ("full").
   */
  readonly kvQuality?: KvQuality | undefined;
  /**
   * With "full": "high" or "economy" where the verifier is short of memory. The session is packed
   * then, and computes its history once more; `kvQuality` of its ends tells. Never unless given.
   */
  readonly kvQualityWhenShort?: KvQuality | undefined;
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
 * that does not exist.
 */
export function restorer(options: RestorerOptions): Restorer | undefined {
  const { restorer: kind, restorerModel, restorerNodeId, kvQuality, kvQualityWhenShort } = options;
  const named = kind ?? kvQuality ?? kvQualityWhenShort;
  if (named === undefined && !restorerModel && !restorerNodeId) {
    return undefined;
  }
  return create(RestorerSchema, {
    kind:
      kind === undefined
        ? options.kvStrategy === "full"
          ? WireRestorerKind.UNSPECIFIED
          : WireRestorerKind.ARCHIVE
        : enumNumber(RestorerKindSchema, kind, RESTORER_KINDS, "restorer"),
    modelId: restorerModel ?? "",
    nodeId: restorerNodeId ?? "",
    quality: qualityNumber(kvQuality, "kvQuality"),
    qualityWhenShort: qualityNumber(kvQualityWhenShort, "kvQualityWhenShort"),
  });
}

function qualityNumber(quality: KvQuality | undefined, field: string): WireKvQuality {
  return quality === undefined
    ? WireKvQuality.UNSPECIFIED
    : enumNumber(KvQualitySchema, quality, KV_QUALITIES, field);
}
