import { createServer, type Http2Server, type ServerHttp2Session } from "node:http2";
import { setTimeout as pause } from "node:timers/promises";

import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";

import {
  CapabilityService,
  KvStrategy,
  PlacementService,
  RuntimeService,
  SessionOutcome,
  StopReason,
  type BlockTiming,
  type GenerateDoneSchema,
  type GenerateResponseSchema,
} from "./contract";
import type { SyntheticFleet } from "./fleet";
import { serveModels } from "./models";
import { CHAT_LABEL, type SyntheticNode } from "./node";
import { plan } from "./plan";
import type { SyntheticSession } from "./session";
import type { ServedText } from "./text";

/** One node's gRPC server, which can be silenced and answers again at the same port. */
export class NodeServer {
  readonly #node: SyntheticNode;
  readonly #handler: ReturnType<typeof connectNodeAdapter>;
  readonly #connections = new Set<ServerHttp2Session>();
  #server: Http2Server | undefined;
  #port = 0;

  constructor(fleet: SyntheticFleet, node: SyntheticNode, text: ServedText) {
    this.#node = node;
    this.#handler = connectNodeAdapter({ routes: routes(fleet, node, text) });
  }

  async listen(): Promise<void> {
    const server = createServer(this.#handler);
    server.on("session", (session) => {
      this.#connections.add(session);
      session.on("close", () => this.#connections.delete(session));
    });
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(this.#port, "127.0.0.1", resolve);
    });
    const bound = server.address();
    if (bound === null || typeof bound === "string") throw new Error("The server has no port.");
    this.#port = bound.port;
    this.#node.address = `127.0.0.1:${bound.port}`;
    this.#server = server;
  }

  /** Cuts every connection, as a power cut would. */
  silence(): void {
    for (const connection of this.#connections) connection.destroy();
    this.#server?.close();
    this.#server = undefined;
  }
}

function routes(
  fleet: SyntheticFleet,
  node: SyntheticNode,
  text: ServedText,
): (router: ConnectRouter) => void {
  const member = fleet.find(node.machine.name);
  if (member === undefined) throw new Error(`${node.machine.name} is not in the fleet.`);
  return (router) => {
    router.service(CapabilityService, {
      getNode: () => node.report(),
      watchFleet: (_request, context) =>
        member.changes.listen(fleet.snapshot(node), context.signal),
      watchNode: (request, context) =>
        node.nodeFeed.listen(node.history(request.historySeconds), context.signal),
    });
    serveModels(router, fleet, member);
    router.service(PlacementService, {
      plan: (request) => {
        const decided = plan(fleet, request.verifierModel);
        if (decided === undefined) {
          throw new ConnectError(`No node serves ${request.verifierModel}.`, Code.NotFound);
        }
        return { plan: decided };
      },
    });
    router.service(RuntimeService, {
      watchSessions: (request, context) =>
        node.sessionFeed.listen(node.sessionSnapshot(request.blockCount || 64), context.signal),
      listSessions: () => ({ sessions: [...node.sessions.values()].map((row) => row.info()) }),
      createSession: (request) => {
        const session = node.open(
          request.modelId,
          CHAT_LABEL,
          request.kvStrategy || KvStrategy.SINK_WINDOW,
        );
        if (session === undefined) throw notFound(`${request.modelId} is not served here.`);
        const offer = node.machine.offers.find((row) => row.modelId === request.modelId);
        const { plan: decided } = session.info();
        return {
          sessionId: session.setting.sessionId,
          ...(offer === undefined ? {} : { model: offer }),
          vocabularySize: offer?.vocabularySize ?? 0,
          ...(decided === undefined ? {} : { plan: decided }),
        };
      },
      appendTokens: (request) => {
        const session = found(node, request.sessionId);
        session.append(request.tokenIds.length, 0.02);
        node.tellSession(session);
        return { historyLength: BigInt(session.historyLength) };
      },
      generate: (request, context) =>
        generate(node, found(node, request.sessionId), {
          tokenIds: text.answer.slice(0, request.maxTokens),
          isWhole: text.answer.length <= request.maxTokens,
          signal: context.signal,
        }),
      forkSession: (request) => {
        const { setting, historyLength } = found(node, request.sessionId);
        const { modelId } = setting.verifier;
        const fork = node.open(modelId, setting.label, setting.kvStrategy);
        if (fork === undefined) throw notFound(`${modelId} is not served here.`);
        fork.append(Number(request.historyLength ?? historyLength), 0);
        return {
          sessionId: fork.setting.sessionId,
          historyLength: BigInt(fork.historyLength),
        };
      },
      getSessionInfo: (request) => ({ session: found(node, request.sessionId).info() }),
      closeSession: (request) => {
        const length = found(node, request.sessionId).historyLength;
        node.close(request.sessionId, SessionOutcome.CLOSED);
        return { historyLength: BigInt(length) };
      },
      getTokenizer: async function* () {
        const { files } = text;
        yield {
          kind: {
            case: "header" as const,
            value: {
              tokenizerDigest: files[0]?.sha256 ?? "",
              files: files.map(({ name, bytes, sha256 }) => ({
                name,
                byteCount: BigInt(bytes.length),
                sha256,
              })),
            },
          },
        };
        for (const { bytes } of files) {
          for (let from = 0; from < bytes.length; from += 262_144) {
            const chunk = new Uint8Array(bytes.subarray(from, from + 262_144));
            yield { kind: { case: "chunk" as const, value: chunk } };
          }
        }
      },
    });
  };
}

/** Blocks of the tokens, at a readable pace. */
async function* generate(
  node: SyntheticNode,
  session: SyntheticSession,
  asked: { tokenIds: readonly number[]; isWhole: boolean; signal: AbortSignal },
): AsyncGenerator<MessageInitShape<typeof GenerateResponseSchema>> {
  const began = Date.now();
  const blocks: BlockTiming[] = [];
  const { tokenIds: all, isWhole, signal } = asked;
  let told = 0;
  session.begin(began, 3600_000);
  try {
    while (told < all.length && !signal.aborted) {
      await pause(40, undefined, { signal });
      const block = session.commit(Date.now());
      node.tellSession(session);
      blocks.push(block);
      const tokenIds = all.slice(told, told + block.committedCount);
      told += tokenIds.length;
      session.cut(block.committedCount - tokenIds.length);
      const drafted = Math.min(block.acceptedCount, tokenIds.length);
      yield {
        kind: {
          case: "tokens",
          value: { tokenIds, firstIndex: block.firstIndex, draftedCount: drafted },
        },
      };
    }
  } finally {
    session.rest(Date.now());
    node.tellSession(session);
  }
  const stopReason = isWhole ? StopReason.STOP_TOKEN : StopReason.MAX_TOKENS;
  yield { kind: { case: "done", value: { ...done(blocks, told, session, began), stopReason } } };
}

function done(
  blocks: BlockTiming[],
  generatedTokenCount: number,
  session: SyntheticSession,
  began: number,
): MessageInitShape<typeof GenerateDoneSchema> {
  return {
    generatedTokenCount,
    historyLength: BigInt(session.historyLength),
    timings: { firstTokenSeconds: 0.04, totalSeconds: (Date.now() - began) / 1000 },
    speculation: {
      blockCount: blocks.length,
      draftedCount: blocks.reduce((sum, block) => sum + block.draftedCount, 0),
      acceptedCount: blocks.reduce((sum, block) => sum + block.acceptedCount, 0),
      verifyForwardCount: blocks.length,
      acceptanceLength: generatedTokenCount / Math.max(1, blocks.length),
    },
    timeline: blocks.slice(-256),
  };
}

function found(node: SyntheticNode, sessionId: string): SyntheticSession {
  const session = node.sessions.get(sessionId);
  if (session === undefined) throw notFound(`There is no session ${sessionId}.`);
  return session;
}

function notFound(message: string): ConnectError {
  return new ConnectError(message, Code.NotFound);
}
