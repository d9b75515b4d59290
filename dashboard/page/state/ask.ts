/** What the page asks of its process: a plan, an answer in the playground. */

import type {
  PlanQuestion,
  PlanView,
  PlaygroundMessage,
  PlaygroundRequest,
  Problem,
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

/**
 * Generates in the playground. Leaving the loop, or aborting `signal`, stops the
 * work on the node; the session stays until `close`. A failure is the last
 * message, of type "problem"; so is one before the first. Rethrows an abort.
 */
export async function* generate(
  request: PlaygroundRequest,
  signal?: AbortSignal,
): AsyncGenerator<PlaygroundMessage, void, undefined> {
  const left = new AbortController();
  const either = signal === undefined ? left.signal : AbortSignal.any([signal, left.signal]);
  try {
    const response = await post("/generate", request, either);
    if (response.body === null) return;
    for await (const data of eventData(response.body)) yield JSON.parse(data) as PlaygroundMessage;
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    yield { type: "problem", problem: error.problem };
  } finally {
    left.abort();
  }
}

/** Closes a session of the playground; reaches the process also while the page goes away. */
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
