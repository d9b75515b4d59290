/** Numbers as people read them. What is not known, or not a number, is an em dash. */

/** What stands for a number that is not there. */
export const NONE = "—";
const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

/** A value and its unit, to be set in different sizes. */
export interface Quantity {
  value: string;
  unit: string;
}

/** Three significant digits below 1000, so that a column keeps its width. */
function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 99.95 || value === 0) return Math.round(value).toLocaleString("en");
  return value.toFixed(size >= 9.995 ? 1 : 2);
}

export function byteQuantity(bytes: number): Quantity {
  if (!Number.isFinite(bytes) || bytes < 0) return { value: NONE, unit: "" };
  let value = bytes;
  let unit = 0;
  // Machines are compared in GiB, so that unit lasts longest.
  while (value >= (unit === 3 ? 9999.5 : 999.5) && unit < BYTE_UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return { value: unit === 0 ? String(Math.round(value)) : digits(value), unit: BYTE_UNITS[unit]! };
}

/** 12.4 GiB */
export function bytes(count: number): string {
  const { value, unit } = byteQuantity(count);
  return unit === "" ? value : `${value} ${unit}`;
}

/** 61.2 / 96.0 GiB: both in the unit of the whole. */
export function bytesOf(
  part: number,
  whole: number,
): { part: string; whole: string; unit: string } {
  const { unit } = byteQuantity(whole);
  const scale = 1024 ** Math.max(0, BYTE_UNITS.indexOf(unit as (typeof BYTE_UNITS)[number]));
  const show = (count: number): string => (Number.isFinite(count) ? digits(count / scale) : NONE);
  return { part: show(part), whole: show(whole), unit };
}

/** 118 MiB/s */
export function byteRate(bytesPerSecond: number): string {
  return `${bytes(bytesPerSecond)}/s`;
}

/** 0.31 ms, 12.4 ms, 1.40 s, 3 m 12 s, 2 h 05 m, 4 d 3 h */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return NONE;
  if (seconds === 0) return "0 s";
  if (seconds < 0.0000995) return `${digits(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${digits(seconds * 1e3)} ms`;
  if (seconds < 59.95) return `${digits(seconds)} s`;
  const whole = Math.round(seconds);
  const two = (count: number): string => String(count).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${two(whole % 60)} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} m`;
  const hours = Math.floor(minutes / 60);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** 12 s ago, 3 m ago; coarse, so that it does not flicker. */
export function ago(at: number, now: number): string {
  const seconds = Math.max(0, Math.round((now - at) / 1000));
  if (seconds < 2) return "now";
  return `${span(seconds)} ago`;
}

/** 12 s, 3 m, 5 h, 2 d: the largest unit alone. */
export function span(seconds: number): string {
  if (!Number.isFinite(seconds)) return NONE;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** 12,345; from 100,000 on 123k and 1.23M. */
export function count(value: number): string {
  if (!Number.isFinite(value)) return NONE;
  if (value < 99_950) return Math.round(value).toLocaleString("en");
  if (value < 999_500) return `${Math.round(value / 1000)}k`;
  return `${digits(value / 1e6)}M`;
}

/** Tokens a second: one decimal below 100, none above. */
export function tokenRate(value: number): string {
  if (!Number.isFinite(value)) return NONE;
  if (value === 0) return "0";
  return value < 99.95 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
}

/** Tokens a second in two or three characters, for small places. */
export function tokenRateShort(value: number): string {
  if (value >= 9995) return `${Math.round(value / 1000)}k`;
  if (value >= 999.5) return `${(value / 1000).toFixed(1)}k`;
  return value > 0 && value < 9.95 ? value.toFixed(1) : String(Math.round(value));
}

export function percent(share: number): string {
  return Number.isFinite(share) ? `${Math.round(share * 100)} %` : NONE;
}

/** 08:47:12 */
export function clockTime(at: number): string {
  return at > 0 ? new Date(at).toLocaleTimeString("en-GB", { hour12: false }) : NONE;
}

/** 22 Nov 08:47:12 */
export function dateTime(at: number): string {
  if (at <= 0) return NONE;
  return `${day(at)} ${clockTime(at)}`;
}

/** 22 Nov */
export function day(at: number): string {
  return new Date(at).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}

/** Whether it was on the day that `now` is on, where the page is. */
export function isToday(at: number, now: number): boolean {
  return new Date(at).toDateString() === new Date(now).toDateString();
}

/** The last part of a hub id: what of a model's name fits in a column. */
export function modelName(modelId: string): string {
  return modelId.slice(modelId.lastIndexOf("/") + 1);
}

/** A name for a place that has room for so many characters; the whole belongs on its hover. */
export function clipped(name: string, most = 20): string {
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

/** The first characters of a digest. */
export function shortDigest(digest: string): string {
  const hex = digest.slice(digest.indexOf(":") + 1);
  return hex === "" ? NONE : hex.slice(0, 10);
}

/** "1 node", "3 nodes". */
export function plural(amount: number, word: string): string {
  return `${count(amount)} ${word}${amount === 1 ? "" : "s"}`;
}
