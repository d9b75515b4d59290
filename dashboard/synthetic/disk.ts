import { setTimeout as pause } from "node:timers/promises";

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, type ConnectError } from "@connectrpc/connect";

import {
  PullPhase,
  StoredModelSchema,
  TransferKind,
  TransferSchema,
  TransferState,
  type PullModelResponseSchema,
  type PullSourceSchema,
  type StoredModel,
  type Transfer,
} from "./contract";
import { WEIGHT_BYTES, type Member, type SyntheticFleet } from "./fleet";
import { sha256 } from "./machines";
import { refusal } from "./refusal";

const STEPS = 10;
const STEP_MS = 200;
/** A pull of so many bytes finds no room. */
const TOO_LARGE = 2 * 2 ** 30;
/** Of a model of which no size is known. */
const ANY_BYTES = 280_000_000;

interface Running {
  transfer: Transfer;
  sources: MessageInitShape<typeof PullSourceSchema>[];
  failure: ConnectError | undefined;
}

/** A node's disk: what is copied to it from the nodes that have it, two seconds each. */
export class SyntheticDisk {
  readonly #fleet: SyntheticFleet;
  readonly #member: Member;
  readonly #running = new Map<string, Running>();
  #count = 0;

  constructor(fleet: SyntheticFleet, member: Member) {
    this.#fleet = fleet;
    this.#member = member;
  }

  list(): StoredModel[] {
    const { stored, machine } = this.#member.node;
    const served = new Set(machine.offers.map(({ modelId }) => modelId));
    return [...stored.values()].map((each) => ({ ...each, isServed: served.has(each.modelId) }));
  }

  /** How a pull stands, as often as it tells; joins one that runs. */
  async *pull(modelId: string): AsyncGenerator<MessageInitShape<typeof PullModelResponseSchema>> {
    const running = this.#running.get(modelId) ?? this.#begin(modelId);
    if (running !== undefined) {
      do {
        const { transfer, sources } = running;
        const value = { phase: PullPhase.COPYING, transfer, sources: [...sources] };
        yield { kind: { case: "progress", value } };
        await pause(STEP_MS, undefined, { ref: false });
      } while (running.transfer.state === TransferState.RUNNING);
      if (running.failure !== undefined) throw running.failure;
    }
    const wasThere = running === undefined;
    const value = { modelId, wasThere, sources: running?.sources ?? [] };
    yield { kind: { case: "pulled", value } };
  }

  /** Bytes of what was removed. */
  remove(modelId: string): bigint {
    const { stored, machine } = this.#member.node;
    if (machine.offers.some((offer) => offer.modelId === modelId)) {
      throw refusal(
        Code.FailedPrecondition,
        "MODEL_IN_USE",
        `${modelId} is served on this node`,
        `\`fleet unload ${modelId}\` first`,
      );
    }
    const running = this.#running.get(modelId);
    if (running !== undefined) {
      const words = `${modelId} was removed while it came`;
      this.#end(running, refusal(Code.Unavailable, "MODEL_NOT_COPIED", words));
    }
    const gone = stored.get(modelId);
    if (gone === undefined) {
      throw refusal(Code.NotFound, "MODEL_NOT_KEPT", `No pull brought ${modelId}.`);
    }
    stored.delete(modelId);
    this.#member.node.event({ kind: "MODEL_REMOVED", message: `${modelId} was removed.` });
    return gone.byteCount;
  }

  /** Undefined where all of it is there. */
  #begin(modelId: string): Running | undefined {
    const { node } = this.#member;
    if (node.stored.get(modelId)?.isWhole === true) return undefined;
    const sources = this.#fleet.members
      .filter((other) => other !== this.#member && has(other, modelId))
      .slice(0, 8)
      .map(({ node: { machine } }) => ({
        nodeId: machine.nodeId,
        nodeName: machine.name,
        doneBytes: 0n,
        fault: "",
      }));
    if (sources.length === 0) {
      throw refusal(Code.NotFound, "MODEL_NOT_FOUND", `No other node has ${modelId}.`);
    }
    this.#count += 1;
    const totalBytes = BigInt(Math.round(WEIGHT_BYTES[modelId] ?? ANY_BYTES));
    const transfer = create(TransferSchema, {
      transferId: `download-${this.#count}`,
      kind: TransferKind.DOWNLOAD,
      modelId,
      state: TransferState.RUNNING,
      totalBytes,
      startedAtUnix: Date.now() / 1000,
    });
    const running = { transfer, sources, failure: undefined };
    this.#running.set(modelId, running);
    void this.#copy(running);
    return running;
  }

  async #copy(running: Running): Promise<void> {
    const { node } = this.#member;
    const { modelId, totalBytes } = running.transfer;
    for (let step = 0; step < STEPS; step += 1) {
      const doneBytes = (totalBytes * BigInt(step)) / BigInt(STEPS);
      this.#tell(running, {
        doneBytes,
        bytesPerSecond: Number(totalBytes) / ((STEPS * STEP_MS) / 1000),
        remainingSeconds: ((STEPS - step) * STEP_MS) / 1000,
      });
      const part = doneBytes / BigInt(running.sources.length);
      running.sources = running.sources.map((source) => ({ ...source, doneBytes: part }));
      this.#keep(running, false);
      await pause(STEP_MS, undefined, { ref: false });
      if (running.transfer.state !== TransferState.RUNNING) return;
      if (totalBytes > TOO_LARGE) {
        node.stored.delete(modelId);
        const words = `the disk has less room than the ${totalBytes} bytes of ${modelId}`;
        const mend = "`fleet rm` makes room";
        this.#end(running, refusal(Code.ResourceExhausted, "MODEL_CACHE_UNWRITABLE", words, mend));
        return;
      }
    }
    this.#keep(running, true);
    this.#end(running, undefined);
  }

  #keep({ transfer, sources }: Running, isWhole: boolean): void {
    const { modelId, doneBytes, totalBytes } = transfer;
    this.#member.node.stored.set(
      modelId,
      create(StoredModelSchema, {
        modelId,
        byteCount: isWhole ? totalBytes : doneBytes,
        filesDigest: sha256(`files of ${modelId}`),
        isWhole,
        pulledAtUnix: isWhole ? Date.now() / 1000 : 0,
        sourceNames: sources.map(({ nodeName }) => nodeName ?? ""),
      }),
    );
  }

  #end(running: Running, failure: ConnectError | undefined): void {
    const { totalBytes, doneBytes, modelId } = running.transfer;
    const failed = failure !== undefined;
    running.failure = failure;
    this.#running.delete(modelId);
    this.#tell(running, {
      state: failed ? TransferState.FAILED : TransferState.DONE,
      doneBytes: failed ? doneBytes : totalBytes,
      bytesPerSecond: 0,
      remainingSeconds: 0,
      error: failure?.rawMessage ?? "",
    });
  }

  #tell(running: Running, part: Partial<Transfer>): void {
    running.transfer = create(TransferSchema, { ...running.transfer, ...part });
    this.#member.node.transfer(running.transfer);
  }
}

function has({ node }: Member, modelId: string): boolean {
  return (
    node.machine.offers.some((offer) => offer.modelId === modelId) ||
    node.stored.get(modelId)?.isWhole === true
  );
}
