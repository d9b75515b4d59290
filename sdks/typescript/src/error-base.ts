/**
 * What every error of the client has. The others are in errors.ts.
 *
 * Each has a `reason` in UPPER_SNAKE_CASE, a `code` (a canonical status such as
 * "NOT_FOUND"), `metadata` for programs, `attempts` (how often the call was sent),
 * and reads as the problem and how to mend it: "PROBLEM; MEND" where the node told
 * the two apart as `problem` and `mend`. `field` names the value at fault. A reason
 * that this client does not know keeps its name and takes the class of its status code.
 */

/** What an error has besides its message. */
export interface ErrorFields {
  readonly reason?: string | undefined;
  readonly code?: string | undefined;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly retryAfterSeconds?: number | null | undefined;
  readonly cause?: unknown;
}

/** Base of all errors of this package. */
export class KakeyaError extends Error {
  /** The `reason` of this class where no other is given. */
  static readonly defaultReason: string = "KAKEYA_ERROR";
  /** The `code` of this class where no other is given. */
  static readonly defaultCode: string = "UNKNOWN";

  /** For programs, in UPPER_SNAKE_CASE. */
  readonly reason: string;
  /** A canonical status, such as "NOT_FOUND". */
  readonly code: string;
  /** What the reason is about. */
  readonly metadata: Record<string, string>;
  /** What is wrong, without `mend`. */
  readonly problem: string;
  /** How to mend it, a few words; empty where `problem` says so itself. */
  readonly mend: string;
  /** When to try again, in seconds; null when the node did not say. */
  readonly retryAfterSeconds: number | null;
  /** How often the call was sent. */
  attempts = 1;

  constructor(problem: string, fields: ErrorFields = {}) {
    const mend = fields.metadata?.["mend"] ?? "";
    super(
      mend ? `${problem.replace(/\.+$/, "")}; ${mend}` : problem,
      fields.cause === undefined ? undefined : { cause: fields.cause },
    );
    const kind = new.target;
    this.name = kind.name;
    this.reason = fields.reason || kind.defaultReason;
    this.code = fields.code || kind.defaultCode;
    this.metadata = { ...fields.metadata };
    this.problem = problem;
    this.mend = mend;
    this.retryAfterSeconds = fields.retryAfterSeconds ?? null;
  }

  /** The parameter, or the part of a chat, that is at fault; empty for none. */
  get field(): string {
    return this.metadata["field"] ?? "";
  }
}
