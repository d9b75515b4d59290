import { setTimeout as pause } from "node:timers/promises";

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, type ConnectRouter } from "@connectrpc/connect";

import {
  LoadPhase,
  ModelService,
  Role,
  TransferKind,
  TransferSchema,
  TransferState,
  type LoadModelResponseSchema,
} from "./contract";
import { SyntheticDisk } from "./disk";
import type { Member, SyntheticFleet } from "./fleet";
import { loadedOffer } from "./machines";
import { refusal } from "./refusal";

const STEPS = 8;
const STEP_MS = 150;
const LOAD_BYTES = 280_000_000;
/** A model of this name is not to be had. */
const MISSING = "missing";

/** ModelService: loads and pulls take a second and go on without their callers, as on a real node. */
export function serveModels(router: ConnectRouter, fleet: SyntheticFleet, member: Member): void {
  const { node } = member;
  const { machine } = node;
  const check = (name: string): void => {
    if (!machine.isOurs) {
      throw refusal(
        Code.PermissionDenied,
        "NOT_LOOPBACK",
        "In a fleet without an authority a node's models are changed from its own machine only.",
      );
    }
    if (name === "") {
      throw refusal(Code.InvalidArgument, "BAD_REQUEST", "model_id has 0 characters.");
    }
  };
  const disk = new SyntheticDisk(fleet, member);
  router.service(ModelService, {
    loadModel: async function* (request) {
      check(request.model);
      const role = request.role || Role.VERIFIER;
      const served = machine.offers.find(
        (offer) => offer.modelId === request.model && offer.role === role,
      );
      if (served !== undefined) {
        yield { kind: { case: "loaded" as const, value: { offer: served, wasServed: true } } };
        return;
      }
      void load(fleet, member, request.model, role);
      yield progress();
    },
    unloadModel: (request) => {
      check(request.modelId);
      const index = machine.offers.findIndex(
        (offer) =>
          offer.modelId === request.modelId &&
          (request.role === Role.UNSPECIFIED || offer.role === request.role),
      );
      const [gone] = index < 0 ? [] : machine.offers.splice(index, 1);
      if (gone === undefined) {
        throw refusal(Code.NotFound, "MODEL_NOT_FOUND", "It is not served here.");
      }
      fleet.announce(member);
      return { modelId: gone.modelId, role: gone.role, memoryFreeBytes: 1n };
    },
    pullModel: (request) => {
      check(request.model);
      return disk.pull(request.model);
    },
    removeModel: (request) => {
      check(request.modelId);
      return { modelId: request.modelId, byteCount: disk.remove(request.modelId) };
    },
    listModels: () => ({ models: disk.list() }),
  });
}

function progress(): MessageInitShape<typeof LoadModelResponseSchema> {
  return { kind: { case: "progress", value: { phase: LoadPhase.READING } } };
}

async function load(
  fleet: SyntheticFleet,
  member: Member,
  modelId: string,
  role: Role,
): Promise<void> {
  const { node } = member;
  const tell = (share: number, state: TransferState, error = ""): void =>
    node.transfer(
      create(TransferSchema, {
        transferId: `load ${modelId} ${role}`,
        kind: TransferKind.LOAD,
        modelId,
        state,
        doneBytes: BigInt(Math.round(LOAD_BYTES * share)),
        totalBytes: BigInt(LOAD_BYTES),
        startedAtUnix: startedAt,
        error,
      }),
    );
  const startedAt = Date.now() / 1000;
  for (let step = 0; step < STEPS; step += 1) {
    tell(step / STEPS, TransferState.RUNNING);
    await pause(STEP_MS, undefined, { ref: false });
    if (modelId === MISSING) {
      tell(0, TransferState.FAILED, `there is no model ${MISSING}: name one of the hub`);
      return;
    }
  }
  tell(1, TransferState.DONE);
  node.machine.offers.push(loadedOffer(modelId, role));
  fleet.announce(member);
}
