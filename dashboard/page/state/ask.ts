/** What the page asks of its process: a plan, an answer, what nodes are to serve and to keep. */

import type {
  DiskQuestion,
  FitView,
  LoadAnswer,
  LoadQuestion,
  LogMessage,
  PlanQuestion,
  PlanView,
  ChatMessage,
  ChatRequest,
  Problem,
  PullAnswer,
  RemoveAnswer,
  RightsView,
  StoredView,
  UnloadAnswer,
  UnloadQuestion,
} from "../../shared/messages";
import { problem } from "../../shared/problem";
import { eventData } from "./event_data";

/** An error that the process, or the fleet behind it, answered with. */
export class ProblemError extends Error {
  override readonly name = "ProblemError";
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.message);
    this.problem = problem;
  }
}

/** Plans without starting anything. Throws ProblemError; rethrows an abort. */
export async function plan(question: PlanQuestion, signal?: AbortSignal): Promise<PlanView> {
  const response = await post("/plan", question, signal);
  return (await response.json()) as PlanView;
}

/** Which nodes' models may be changed from here. Throws ProblemError; rethrows an abort. */
export async function rights(signal?: AbortSignal): Promise<RightsView> {
  return (await (await post("/rights", {}, signal)).json()) as RightsView;
}

/** Has a node serve a model; answers once its load has begun. Throws ProblemError. */
export async function load(question: LoadQuestion): Promise<LoadAnswer> {
  return (await (await post("/load", question)).json()) as LoadAnswer;
}

/** Has a node serve a model no more. Throws ProblemError. */
export async function unload(question: UnloadQuestion): Promise<UnloadAnswer> {
  return (await (await post("/unload", question)).json()) as UnloadAnswer;
}

/** What pulls brought to each node's disk. Throws ProblemError. */
export async function stored(): Promise<StoredView> {
  return (await (await post("/stored", {})).json()) as StoredView;
}

/** Has a node bring a model to its disk; answers once that has begun. Throws ProblemError. */
export async function pull(question: DiskQuestion): Promise<PullAnswer> {
  return (await (await post("/pull", question)).json()) as PullAnswer;
}

/** Removes from a node's disk what a pull brought, or ends the pull. Throws ProblemError. */
export async function removeModel(question: DiskQuestion): Promise<RemoveAnswer> {
  return (await (await post("/remove", question)).json()) as RemoveAnswer;
}

/** On which machines a model would fit. Throws ProblemError; rethrows an abort. */
export async function fit(model: string, signal?: AbortSignal): Promise<FitView> {
  return (await (await post("/fit", { model }, signal)).json()) as FitView;
}

/**
 * Generates the next answer of a conversation. Leaving the loop, or aborting `signal`, stops the
 * work on the node; the session stays until `close`. A failure is the last
 * message, of type "problem"; so is one before the first. Rethrows an abort.
 */
export function generate(
  request: ChatRequest,
  signal?: AbortSignal,
): AsyncGenerator<ChatMessage, void, undefined> {
  return streamed<ChatMessage>("/generate", request, signal);
}

/** Follows the log of a node; ends and fails as `generate` does. */
export function followLog(
  nodeId: string,
  signal: AbortSignal,
): AsyncGenerator<LogMessage, void, undefined> {
  return streamed<LogMessage>("/logs", { nodeId }, signal);
}

async function* streamed<Told>(
  path: string,
  request: unknown,
  signal?: AbortSignal,
): AsyncGenerator<Told | { type: "problem"; problem: Problem }, void, undefined> {
  const left = new AbortController();
  const either = signal === undefined ? left.signal : AbortSignal.any([signal, left.signal]);
  try {
    const response = await post(path, request, either);
    if (response.body === null) return;
    for await (const data of eventData(response.body)) yield JSON.parse(data) as Told;
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    yield { type: "problem", problem: error.problem };
  } finally {
    left.abort();
  }
}

/** Ends a session on its node. Throws ProblemError. */
export async function endSession(nodeId: string, sessionId: string): Promise<void> {
  await post("/end", { nodeId, sessionId });
}

/** Closes a session of a chat; reaches the process also while the page goes away. */
export async function close(sessionKey: string): Promise<void> {
  await fetch("/close", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ sessionKey }),
    keepalive: true,
  });
}

async function post(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      ...(signal === undefined ? {} : { signal }),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const words = "The dashboard's process does not answer.";
    throw new ProblemError(problem("DASHBOARD_UNREACHABLE", words));
  }
  if (!response.ok) throw new ProblemError(await problemOf(response));
  return response;
}

async function problemOf(response: Response): Promise<Problem> {
  if (response.headers.get("content-type")?.startsWith("application/json")) {
    return (await response.json()) as Problem;
  }
  return problem("HTTP_ERROR", `The dashboard's process answered ${response.status}.`);
}
