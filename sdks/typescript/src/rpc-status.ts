/** From a failed call to an error of this package. */

import { Code, ConnectError } from "@connectrpc/connect";

import * as errors from "./errors.js";
import { ErrorInfoSchema, RetryInfoSchema } from "./generated/status_details_pb.js";

type ErrorClass = new (message: string, fields?: errors.ErrorFields) => errors.KakeyaError;

const ERROR_DOMAIN = "kakeya";
const STATUS_HEADER = "grpc-status";

const BY_REASON: ReadonlyMap<string, ErrorClass> = new Map(
  Object.values(errors)
    .filter(
      (kind) =>
        kind.prototype instanceof errors.RpcError ||
        // The one error of text that nodes have too.
        kind === errors.TokenizerNotFound,
    )
    .map((kind) => [kind.defaultReason, kind]),
);

/** A family is named after its status. */
const BY_CODE: ReadonlyMap<string, ErrorClass> = new Map(
  Object.values(errors)
    .filter((kind) => kind.defaultReason === kind.defaultCode)
    .map((kind) => [kind.defaultCode, kind]),
);

/**
 * The error that a failed call to `address` (host:port) stands for.
 *
 * ErrorInfo of the domain "kakeya" decides the class by its reason; a reason
 * that is not known here, or none, takes the class of the status code. An
 * UNAVAILABLE without ErrorInfo is the network's word, not a node's; so is
 * whatever ended the call without a status while the connection was lost.
 */
export function kakeyaError(
  failure: unknown,
  address: string,
  connected: boolean,
): errors.KakeyaError {
  if (failure instanceof errors.KakeyaError) {
    return failure;
  }
  const error = ConnectError.from(failure, Code.Internal);
  const code = codeName(error.code);
  const detail = error.rawMessage || code;
  const info = error.findDetails(ErrorInfoSchema).find((each) => each.domain === ERROR_DOMAIN);
  const delay = error.findDetails(RetryInfoSchema)[0]?.retryDelay;
  const retryAfterSeconds = delay ? Number(delay.seconds) + delay.nanos / 1e9 : null;
  if (info !== undefined) {
    const kind = BY_REASON.get(info.reason) ?? BY_CODE.get(code) ?? errors.RpcError;
    return new kind(detail, {
      reason: info.reason,
      code,
      metadata: info.metadata,
      retryAfterSeconds,
    });
  }
  if (error.code === Code.DeadlineExceeded) {
    return deadlineExceeded(address);
  }
  const answered = error.metadata.has(STATUS_HEADER);
  if (error.code === Code.Unavailable || (!answered && (!connected || isNetworkFault(error)))) {
    return unreachable(address, detail, { cause: error });
  }
  const kind = BY_CODE.get(code) ?? errors.UnexpectedError;
  return new kind(detail, { code, metadata: { address }, retryAfterSeconds, cause: error });
}

/** No answer of `address` (host:port) in time. */
export function deadlineExceeded(address: string): errors.DeadlineExceeded {
  return new errors.DeadlineExceeded(`${address} did not answer in time`, {
    metadata: { address },
  });
}

/** Why a node may not answer: what failed, and what else than its absence can be the cause. */
export interface Silence {
  readonly cause?: unknown;
  readonly doubt?: { cause: string; mend: string } | undefined;
}

/** No node answers at `address` (host:port); `detail` has the network's words. */
export function unreachable(
  address: string,
  detail: string,
  { cause, doubt }: Silence = {},
): errors.NodeUnreachable {
  const also = doubt === undefined ? "" : ` (${doubt.cause})`;
  const mend = doubt?.mend ?? "is `fleet join` running there?";
  return new errors.NodeUnreachable(`no node answers at ${address}${also}: ${mend}`, {
    metadata: { address, detail },
    cause,
  });
}

/** Whether the sockets or HTTP/2 failed, rather than what was said over them. */
function isNetworkFault(error: ConnectError): boolean {
  if (error.code === Code.Aborted) {
    return true;
  }
  const seen = new Set<unknown>();
  for (let cause: unknown = error.cause; cause instanceof Error && !seen.has(cause);) {
    seen.add(cause);
    // Codes of system calls, such as ECONNRESET, and of node's streams.
    if ("code" in cause && typeof cause.code === "string" && /^E[A-Z]/.test(cause.code)) {
      return true;
    }
    cause = cause.cause;
  }
  return false;
}

function codeName(code: Code): string {
  // "Canceled" is spelled with two l among the canonical statuses.
  return code === Code.Canceled
    ? "CANCELLED"
    : Code[code].replaceAll(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
}
