import { EventEmitter, once } from "node:events";

import {
  FailedPrecondition,
  NodeUnreachable,
  type Client,
  type PullProgress,
} from "@kakeya/runtime";
import { expect, test } from "vitest";

import { Pulls } from "../../server/models/disks";
import type { PullView } from "../../shared/messages";
import { until } from "../process/until";
import { sourceView } from "../views";

/** A pull that goes on by one step, or fails, as the test says. */
class Steps {
  readonly clients = { opened: 0, closed: 0 };
  readonly heard: [string, PullView][] = [];
  readonly pulls = new Pulls(
    () => this.#client(),
    (_nodeId, transferId, pull) => this.heard.push([transferId, pull]),
  );
  readonly #events = new EventEmitter();

  step(doneBytes: number): void {
    const sources = [sourceView("b", doneBytes)];
    const transfer = { transferId: "download-1" } as PullProgress["transfer"];
    this.#events.emit("step", { phase: "copying", transfer, sources });
  }

  fail(error: Error): void {
    this.#events.emit("error", error);
  }

  #client(): Client {
    this.clients.opened += 1;
    const next = async () => {
      const [value] = (await once(this.#events, "step")) as [PullProgress];
      return { done: false, value };
    };
    const fleet = { pullModel: () => ({ [Symbol.asyncIterator]: () => ({ next }), pulled: null }) };
    const close = () => Promise.resolve(void (this.clients.closed += 1));
    return { fleet, close } as unknown as Client;
  }
}

const QUESTION = { nodeId: "a", model: "qwen" };

test("a pull is followed once for all who ask, and its failure is told by name", async () => {
  const steps = new Steps();
  const asked = steps.pulls.begin(QUESTION);
  steps.step(0);
  expect(await asked).toEqual({ wasThere: false });
  expect(await steps.pulls.begin(QUESTION)).toEqual({ wasThere: false });
  expect(steps.clients.opened).toBe(1);
  await until(() => steps.heard.length === 1, "the first step");
  steps.step(4);
  await until(() => steps.heard.length === 2, "the second step");
  steps.fail(new FailedPrecondition("another node pulls it", { reason: "MODEL_IN_USE" }));
  await until(() => steps.clients.closed === 1, "the end");
  const sources = [sourceView("b", 4)];
  expect(steps.heard.slice(1)).toEqual([
    ["download-1", { sources, problem: null }],
    ["download-1", { sources, problem: expect.objectContaining({ reason: "MODEL_IN_USE" }) }],
  ]);
  // It may be asked for again.
  const again = steps.pulls.begin(QUESTION);
  steps.fail(new FailedPrecondition("another node pulls it", { reason: "MODEL_IN_USE" }));
  await expect(again).rejects.toThrow("another node pulls it");
  expect(steps.clients).toEqual({ opened: 2, closed: 2 });
});

test("a connection that is lost says nothing of the pull", async () => {
  const steps = new Steps();
  const asked = steps.pulls.begin(QUESTION);
  steps.step(4);
  await asked;
  steps.fail(new NodeUnreachable("it does not answer"));
  await until(() => steps.clients.closed === 1, "the end");
  expect(steps.heard.map(([, { problem }]) => problem)).toEqual([null]);
});
