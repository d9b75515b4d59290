import { create } from "@bufbuild/protobuf";

import {
  BlockTimingSchema,
  DropReason,
  KvStrategy,
  LinkChangeSchema,
  LinkPurpose,
  PlanSchema,
  SessionActivitySchema,
  SessionInfoSchema,
  SessionState,
  StopReason,
  Transport,
  type BlockTiming,
  type LinkChange,
  type Placement,
  type SessionActivity,
  type SessionInfo,
} from "./contract";
import type { Random } from "./random";

/** Blocks that are kept for watchers that come later. */
const BLOCK_LIMIT = 256;

export interface SessionSetting {
  sessionId: string;
  label: string;
  kvStrategy: KvStrategy;
  verifier: Placement;
  proposer: Placement | undefined;
  transport: Transport;
  stepSeconds: number;
  kvBytesPerToken: number;
}

/** A session that reads a prompt, generates, rests and generates again. */
export class SyntheticSession {
  readonly setting: SessionSetting;
  readonly #random: Random;
  readonly #openedAt = Date.now();
  readonly #blocks: BlockTiming[] = [];
  readonly #changes: LinkChange[] = [];
  #fresh: BlockTiming[] = [];
  #history = 0;
  #state = SessionState.IDLE;
  #idleSince = Date.now();
  /** Milliseconds since 1970 at which the state changes. */
  #until = 0;
  #generationAt = 0;
  #blockAt = 0;
  #transport: Transport;
  #dropped = DropReason.UNSPECIFIED;
  #rate = 0;
  #sums = {
    generations: 0,
    generated: 0,
    prefilled: 0,
    prefillSeconds: 0,
    drafted: 0,
    accepted: 0,
    forwards: 0,
    draft: 0,
    wire: 0,
    wait: 0,
    verify: 0,
  };
  /** What the node's sample of this second counts. */
  readonly second = { tokens: 0, prefilled: 0, drafted: 0, accepted: 0, forwards: 0 };

  constructor(setting: SessionSetting, random: Random) {
    this.setting = setting;
    this.#random = random;
    this.#transport = setting.transport;
  }

  get generating(): boolean {
    return this.#state === SessionState.GENERATING;
  }

  get historyLength(): number {
    return this.#history;
  }

  get generations(): number {
    return this.#sums.generations;
  }

  get kvBytes(): number {
    return this.#resident() * this.setting.kvBytesPerToken;
  }

  /** Lets time go on until `now`; whether anything changed. */
  advance(now: number): boolean {
    if (this.#state === SessionState.GENERATING) {
      let changed = false;
      while (this.#blockAt <= now && now < this.#until) {
        this.#block();
        changed = true;
      }
      if (now < this.#until) return changed;
      this.#state = SessionState.IDLE;
      this.#idleSince = now;
      this.#until = now + this.#random.between(1500, 5000);
      return true;
    }
    if (now < this.#until) return false;
    if (this.#state === SessionState.IDLE) {
      this.#state = SessionState.APPENDING;
      this.#until = now + this.#random.between(200, 900);
      return true;
    }
    this.append(this.#random.whole(40, 900), this.#random.between(0.1, 0.8));
    this.begin(now, this.#random.between(6000, 20_000));
    return true;
  }

  /** `count` tokens are appended, in `seconds`. */
  append(count: number, seconds: number): void {
    this.#history += count;
    this.#sums.prefilled += count;
    this.#sums.prefillSeconds += seconds;
    this.second.prefilled += count;
  }

  /** A generation of `milliseconds` begins. */
  begin(now: number, milliseconds: number): void {
    this.#state = SessionState.GENERATING;
    this.#until = now + milliseconds;
    this.#generationAt = now;
    this.#blockAt = now;
    this.#sums.generations += 1;
  }

  /** Commits one block now, of a generation that someone asked for. */
  commit(now: number): BlockTiming {
    this.#blockAt = now;
    return this.#block();
  }

  /** The last `count` tokens are behind what ended the answer. */
  cut(count: number): void {
    this.#history -= count;
  }

  /** The generation that someone asked for ended. */
  rest(now: number): void {
    this.#state = SessionState.IDLE;
    this.#idleSince = now;
  }

  /** Its link goes over to `transport`. */
  move(transport: Transport, reason: string): void {
    this.#transport = transport;
    const change = create(LinkChangeSchema, {
      startSeconds: Math.max(0, (Date.now() - this.#generationAt) / 1000),
      purpose: LinkPurpose.FEATURES,
      transport,
      generation: this.#changes.length + 1,
      reason,
      peerNodeId: this.setting.proposer?.nodeId ?? "",
    });
    this.#changes.push(change);
    if (this.#changes.length > 16) this.#changes.shift();
  }

  /** Its proposer is lost, or back. */
  drop(reason: DropReason): void {
    this.#dropped = reason;
  }

  info(): SessionInfo {
    const { setting } = this;
    const idle = this.#state === SessionState.IDLE ? (Date.now() - this.#idleSince) / 1000 : 0;
    return create(SessionInfoSchema, {
      sessionId: setting.sessionId,
      modelId: setting.verifier.modelId,
      clientLabel: setting.label,
      historyLength: BigInt(this.#history),
      kvBytes: BigInt(this.kvBytes),
      residentTokenCount: BigInt(this.#resident()),
      kvStrategy: setting.kvStrategy,
      sinkTokens: 4,
      windowTokens: 1024,
      state: this.#state,
      idleSeconds: idle,
      ttlSeconds: 900,
      ageSeconds: (Date.now() - this.#openedAt) / 1000,
      plan: create(PlanSchema, {
        verifier: setting.verifier,
        ...(setting.proposer === undefined ? {} : { proposer: setting.proposer }),
        transport: this.#transport,
        blockSize: setting.proposer === undefined ? 0 : 7,
        predictedTokensPerSecond: 88,
        predictedAloneTokensPerSecond: 1 / setting.stepSeconds,
        reasons: [
          `${setting.verifier.nodeName} verifies: it has the most free memory of 3 that serve ${setting.verifier.modelId}.`,
          setting.proposer === undefined
            ? "It decodes alone: no proposer has its tokenizer."
            : `${setting.proposer.nodeName} drafts blocks of 7: 2.1 times the speed alone is predicted.`,
        ],
        exact: true,
      }),
      dropReason: this.#dropped,
      forwardCount: BigInt(this.#sums.forwards),
      forgottenTokenCount: BigInt(this.#forgotten()),
      invariants: ["history_cache_agreement", "bounded_kv_memory", "contiguous_commit"].map(
        (invariant) => ({ invariant, checkCount: BigInt(this.#sums.forwards) }),
      ),
    });
  }

  /** All that it did, with its latest `blockCount` blocks. */
  activity(blockCount: number): SessionActivity {
    return this.#activity(this.#blocks.slice(-blockCount));
  }

  /** All that it did, with the blocks since the last call. */
  change(): SessionActivity {
    const blocks = this.#fresh;
    this.#fresh = [];
    return this.#activity(blocks);
  }

  #activity(blocks: BlockTiming[]): SessionActivity {
    const sums = this.#sums;
    return create(SessionActivitySchema, {
      session: this.info(),
      blocks,
      tokensPerSecond: this.#rate,
      generationCount: sums.generations,
      generatedTokenCount: BigInt(sums.generated),
      prefilledTokenCount: BigInt(sums.prefilled),
      prefillSeconds: sums.prefillSeconds,
      draftedCount: BigInt(sums.drafted),
      acceptedCount: BigInt(sums.accepted),
      verifyForwardCount: BigInt(sums.forwards),
      draftSeconds: sums.draft,
      wireSeconds: sums.wire,
      waitSeconds: sums.wait,
      verifySeconds: sums.verify,
      linkChanges: this.#changes,
      stopReason: sums.generations > 1 ? StopReason.STOP_TOKEN : StopReason.UNSPECIFIED,
    });
  }

  #forgotten(): number {
    if (this.setting.kvStrategy !== KvStrategy.SINK_WINDOW) return 0;
    return this.#history - this.#resident();
  }

  #resident(): number {
    if (this.setting.kvStrategy === KvStrategy.FULL) return this.#history;
    return Math.min(this.#history, 4 + 1024);
  }

  #block(): BlockTiming {
    const alone = this.setting.proposer === undefined || this.#dropped !== DropReason.UNSPECIFIED;
    const drafted = alone ? 0 : 7;
    let accepted = 0;
    while (accepted < drafted && this.#random.chance(0.72)) accepted += 1;
    const draft = alone ? 0 : this.#random.between(0.004, 0.009);
    const wire = alone ? 0 : this.#random.between(0.0004, 0.003);
    const ahead = !alone && this.#random.chance(0.6);
    const wait = alone ? 0 : ahead ? this.#random.between(0, 0.001) : draft + wire;
    const verify = this.setting.stepSeconds * this.#random.between(1, 1.5);
    const seconds = Math.max(wait + verify, 0.03);
    const block = create(BlockTimingSchema, {
      firstIndex: BigInt(this.#history),
      draftedCount: drafted,
      acceptedCount: accepted,
      draftSeconds: draft,
      wireSeconds: wire,
      waitSeconds: wait,
      verifySeconds: verify,
      draftedAhead: ahead,
      startSeconds: (this.#blockAt - this.#generationAt) / 1000,
      generationNumber: this.#sums.generations,
      committedCount: accepted + 1,
    });
    this.#blockAt += seconds * 1000;
    this.#count(block);
    this.#rate = this.#rate * 0.9 + ((accepted + 1) / seconds) * 0.1;
    return block;
  }

  #count(block: BlockTiming): void {
    const sums = this.#sums;
    this.#history += block.committedCount;
    sums.generated += block.committedCount;
    sums.drafted += block.draftedCount;
    sums.accepted += block.acceptedCount;
    sums.forwards += 1;
    sums.draft += block.draftSeconds;
    sums.wire += block.wireSeconds;
    sums.wait += block.waitSeconds;
    sums.verify += block.verifySeconds;
    this.second.tokens += block.committedCount;
    this.second.drafted += block.draftedCount;
    this.second.accepted += block.acceptedCount;
    this.second.forwards += 1;
    this.#blocks.push(block);
    if (this.#blocks.length > BLOCK_LIMIT) this.#blocks.shift();
    this.#fresh.push(block);
    if (this.#fresh.length > BLOCK_LIMIT) this.#fresh.shift();
  }
}
