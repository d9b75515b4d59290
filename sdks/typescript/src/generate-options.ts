/** What a generation is asked for. */

import { randomBytes } from "node:crypto";

import { create } from "@bufbuild/protobuf";

import type { CallOptions } from "./fleet.js";
import { GenerateRequestSchema, type GenerateRequest } from "./generated/kakeya/v1/runtime_pb.js";
import { grammar, type GrammarOptions } from "./grammar.js";
import * as ranges from "./ranges.js";

/**
 * How a generation chooses its tokens, and when it ends.
 *
 * In this order: `logitBias` is added to the logits; those of ids that the history
 * has are divided by `repetitionPenalty`, or multiplied where negative; those of
 * ids that this generation has chosen before are lowered by `frequencyPenalty` as
 * often, and by `presencePenalty` once; what the grammar does not allow is left out;
 * `temperature` 0 takes the largest, and otherwise divides them; the `topK` most
 * probable ids are kept, of these the smallest set whose probability reaches
 * `topP`, of these the ids at least `minP` times as probable as the first.
 */
export interface GenerateOptions extends CallOptions, GrammarOptions {
  /** 1 to 1,048,576. */
  readonly maxTokens: number;
  /** 0, greedy, unless given; at most 100. */
  readonly temperature?: number | undefined;
  /** 0 or 1, as when not given, keeps all. */
  readonly topP?: number | undefined;
  /** 0, as when not given, keeps all. */
  readonly topK?: number | undefined;
  /** 0, as when not given, keeps all. */
  readonly minP?: number | undefined;
  /** 1/64 to 64; 1, as when not given, changes nothing. */
  readonly repetitionPenalty?: number | undefined;
  /** -2 to 2; 0, as when not given, changes nothing. */
  readonly frequencyPenalty?: number | undefined;
  /** -2 to 2; 0, as when not given, changes nothing. */
  readonly presencePenalty?: number | undefined;
  /** By id: -10,000 to 10,000, or -Infinity, which bans the id. */
  readonly logitBias?: Readonly<Record<number, number>> | undefined;
  /** Names the sampled stream: the same seed gives the same ids. Drawn unless given. */
  readonly seed?: bigint | number | undefined;
  /** Stop after one of these, besides the session's own. */
  readonly stopTokenIds?: readonly number[] | undefined;
  /** 0 to 20: tokens come with log-probabilities, and those of so many alternatives. */
  readonly topLogProbabilities?: number | undefined;
  /** Stop after so many seconds. */
  readonly deadlineSeconds?: number | undefined;
  /** Names the generation for `fleet trace`; at most 128 characters. */
  readonly requestId?: string | undefined;
  /**
   * Whether the session, from the generation's end until its next operation, makes way at once
   * where another needs its memory or its place, however short it has been idle: for one that
   * may go on, or never. False unless given.
   */
  readonly givesWay?: boolean | undefined;
}

/** How an answer is made of text; `maxTokens` is the chat's, or 2,048, unless given. */
export interface SayOptions extends Omit<GenerateOptions, "maxTokens"> {
  /** 1 to 1,048,576. */
  readonly maxTokens?: number | undefined;
}

/** How answers choose their tokens, and when they end. */
export type SamplingOptions = Omit<GenerateOptions, "maxTokens" | keyof CallOptions>;

/**
 * The request; with `drawsSeed` a sampled one has a seed, so that another node can
 * go on with its stream. Throws BadRequest for a value outside its range, by name.
 */
export function generateRequest(options: GenerateOptions, drawsSeed: boolean): GenerateRequest {
  const { deadlineSeconds = 0, topLogProbabilities } = options;
  const held = grammar(options);
  return create(GenerateRequestSchema, {
    maxTokens: ranges.whole("maxTokens", options.maxTokens, 1, ranges.MAX_GENERATED_TOKENS),
    temperature: ranges.number("temperature", options.temperature ?? 0, 0, ranges.MAX_TEMPERATURE),
    topP: ranges.number("topP", options.topP ?? 1, 0, 1),
    topK: ranges.whole("topK", options.topK ?? 0, 0),
    minP: ranges.number("minP", options.minP ?? 0, 0, 1),
    repetitionPenalty: ranges.repetitionPenalty(options.repetitionPenalty ?? 1),
    frequencyPenalty: ranges.countPenalty("frequencyPenalty", options.frequencyPenalty),
    presencePenalty: ranges.countPenalty("presencePenalty", options.presencePenalty),
    logitBias: ranges.logitBias(options.logitBias),
    stopTokenIds: ranges.stopTokenIds(options.stopTokenIds),
    deadlineSeconds: ranges.number("deadlineSeconds", deadlineSeconds, 0, ranges.LONGEST_SECONDS),
    requestId: ranges.name("requestId", options.requestId ?? ""),
    givesWay: options.givesWay ?? false,
    ...seed(options, drawsSeed),
    ...(held === undefined ? {} : { grammar: held }),
    ...(topLogProbabilities === undefined
      ? {}
      : {
          topLogProbabilities: ranges.whole(
            "topLogProbabilities",
            topLogProbabilities,
            0,
            ranges.MAX_ALTERNATIVES,
          ),
        }),
  });
}

function seed(options: GenerateOptions, drawsSeed: boolean): { seed?: bigint } {
  if (options.seed !== undefined) {
    return { seed: ranges.seed(options.seed) };
  }
  return drawsSeed && options.temperature ? { seed: randomBytes(8).readBigUInt64LE() } : {};
}
