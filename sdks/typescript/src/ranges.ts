/** Values of a request, checked before anything is sent: an error names its field and its range. */

import { BadRequest, TokenOutOfVocabulary } from "./errors.js";

/** What a field of 32 bits holds, for counts that have no smaller limit. */
export const LARGEST_COUNT = 0xffff_ffff;
export const LARGEST_SEED = (1n << 64n) - 1n;
export const MAX_GENERATED_TOKENS = 1 << 20;
export const MAX_NAME_CHARACTERS = 128;
export const MAX_STOP_TOKENS = 1024;
export const MAX_BIASES = 1024;
export const MAX_BIAS = 10_000;
export const MAX_TEMPERATURE = 100;
export const MAX_PENALTY = 64;
export const MAX_COUNT_PENALTY = 2;
export const MAX_ALTERNATIVES = 20;
export const MAX_DRAFTED_TOKENS = 31;
export const MAX_PAGE_SIZE = 1000;
export const MAX_WATCHED_BLOCKS = 256;
export const MAX_HISTORY_SECONDS = 900;
export const MAX_DRAIN_SECONDS = 3600;
export const MAX_UNLOAD_AFTER_SECONDS = 31_536_000;
/** Longer than any deadline means. */
export const LONGEST_SECONDS = 1e9;

/** A whole number from `low` to `high`. Throws BadRequest. */
export function whole(field: string, value: number, low: number, high = LARGEST_COUNT): number {
  if (!(Number.isInteger(value) && value >= low && value <= high)) {
    throw wrong(field, `a whole number from ${shown(low)} to ${shown(high)}`, value);
  }
  return value;
}

/** A finite number from `low` to `high`. Throws BadRequest. */
export function number(field: string, value: number, low: number, high: number): number {
  if (!(typeof value === "number" && value >= low && value <= high)) {
    throw wrong(field, `a number from ${shown(low)} to ${shown(high)}`, value);
  }
  return value;
}

/** A text of at most MAX_NAME_CHARACTERS. Throws BadRequest. */
export function name(field: string, value: string): string {
  // By code points, as the node counts.
  if (typeof value !== "string" || [...value].length > MAX_NAME_CHARACTERS) {
    throw wrong(field, `a text of at most ${MAX_NAME_CHARACTERS} characters`, value);
  }
  return value;
}

/** The ids. Throws BadRequest for what is no id, TokenOutOfVocabulary. */
export function tokenIds(field: string, given: readonly number[]): readonly number[] {
  if (typeof given === "string") {
    throw new BadRequest(
      `${field} is a list of token ids, not text: encode it first, ` +
        "(await textCodec(client, model)).encode(text)",
      { metadata: { field } },
    );
  }
  if (!Array.isArray(given)) {
    throw wrong(field, "a list of token ids", given);
  }
  const place = given.findIndex((id) => !(Number.isInteger(id) && id >= 0 && id <= LARGEST_COUNT));
  if (place >= 0) {
    const [at, id] = [`${field}[${place}]`, given[place] as unknown];
    throw Number.isInteger(id)
      ? new TokenOutOfVocabulary(`${at} is not in the vocabulary: ${String(id)}`, {
          metadata: { field: at },
        })
      : wrong(at, "a token id, a whole number", id);
  }
  return given;
}

/** Ids that end a generation. Throws BadRequest. */
export function stopTokenIds(given: readonly number[] = []): number[] {
  if (typeof given === "string" || given.length > MAX_STOP_TOKENS) {
    throw wrong("stopTokenIds", `a list of at most ${shown(MAX_STOP_TOKENS)} ids`, given);
  }
  return given.map((id, place) => whole(`stopTokenIds[${place}]`, id, 0));
}

/** 1/64 to 64, or 0 for 1. Throws BadRequest. */
export function repetitionPenalty(value: number): number {
  return number("repetitionPenalty", value, value === 0 ? 0 : 1 / MAX_PENALTY, MAX_PENALTY);
}

/** -2 to 2. Throws BadRequest. */
export function countPenalty(field: string, value = 0): number {
  return number(field, value, -MAX_COUNT_PENALTY, MAX_COUNT_PENALTY);
}

/** By id: -MAX_BIAS to MAX_BIAS, or -Infinity. Throws BadRequest. */
export function logitBias(given: Readonly<Record<number, number>> = {}): Record<number, number> {
  const biases = Object.entries(given);
  for (const [id, bias] of biases) {
    whole("logitBias", Number(id), 0);
    if (bias !== Number.NEGATIVE_INFINITY) {
      number(`logitBias[${id}]`, bias, -MAX_BIAS, MAX_BIAS);
    }
  }
  if (biases.length > MAX_BIASES) {
    throw wrong("logitBias", `an object of at most ${shown(MAX_BIASES)} ids`, biases.length);
  }
  return { ...given };
}

/** 0 to 2^64 - 1; a number only where it is exact. Throws BadRequest. */
export function seed(value: bigint | number): bigint {
  const exact = typeof value === "bigint" || Number.isSafeInteger(value);
  if (!exact || value < 0 || value > LARGEST_SEED) {
    throw wrong("seed", "a whole number from 0 to 2^64 - 1, and a bigint above 2^53", value);
  }
  return BigInt(value);
}

/** A header of W3C Trace Context, or empty. Throws BadRequest. */
export function traceparent(value: string): string {
  if (value !== "" && !/^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(value)) {
    throw wrong("traceparent", "00-TRACE-SPAN-FLAGS, in hexadecimal digits", value);
  }
  return value;
}

function wrong(field: string, expected: string, value: unknown): BadRequest {
  const text = typeof value === "string" ? JSON.stringify(value) : String(value);
  const cut = text.length > 60 ? `${text.slice(0, 57)}...` : text;
  return new BadRequest(`${field} is ${expected}, not ${cut}`, { metadata: { field } });
}

function shown(bound: number): string {
  return bound.toLocaleString("en-US", { maximumSignificantDigits: 10 });
}
