import { Fragment } from "preact";
import { useState } from "preact/hooks";

import type { BlockView, Problem, SessionView } from "../../shared/messages";
import { alone, otherReasons } from "../parts/alone";
import { State } from "../parts/badges";
import { Empty } from "../parts/empty";
import { EventList, NodeLink } from "../parts/event_list";
import { second } from "../parts/clock";
import {
  bytes,
  count,
  duration,
  modelName,
  NONE,
  percent,
  plural,
  tokenRate,
} from "../parts/format";
import { Meter } from "../parts/meter";
import { PageHead } from "../parts/page_head";
import { Panel } from "../parts/panel";
import { Mend, ProblemBox } from "../parts/problem";
import { href } from "../parts/route";
import { sessionState, TRANSPORT_NAME } from "../parts/states";
import { Bars } from "../parts/timeline/bars";
import { keptBins, timeBins } from "../parts/timeline/histogram";
import { Timeline } from "../parts/timeline/timeline";
import { Value } from "../parts/value";
import { endedSessions, events, session, sessionKey as keyOf } from "../state/fleet";
import { endSession, ProblemError } from "../state/ask";
import { sessionName } from "./sessions";

/** Blocks of the timeline. */
const ROWS = 8;

/** One session, by `NODE/SESSION`. */
export function SessionPage({ sessionKey }: { sessionKey: string }) {
  const live = session(sessionKey).value;
  const ended = endedSessions.value.find((each) => keyOf(each.session) === sessionKey);
  const view = live ?? ended?.session;
  const [refusal, setRefusal] = useState<Problem | null>(null);
  const crumb = { label: "Sessions", href: href("sessions") };
  if (view === undefined) {
    return (
      <>
        <PageHead title="Not open" crumb={crumb} />
        <Panel title="Session">
          <Empty title="This session is not open">
            It was closed or evicted before this page was opened, or never was.
          </Empty>
        </Panel>
      </>
    );
  }
  const heard = events.value.filter(
    (event) => event.sessionId === view.sessionId && event.nodeId === view.nodeId,
  );
  return (
    <>
      <PageHead title={sessionName(view)} crumb={crumb}>
        {live === undefined ? (
          <span class="tag">{ended?.outcome.replaceAll("_", " ") ?? "ended"}</span>
        ) : (
          <State {...sessionState(view)} />
        )}
        <span class="lede">
          {modelName(view.modelId)} on <NodeLink nodeId={view.nodeId} />
        </span>
        {live !== undefined && <Ending view={live} onRefused={setRefusal} />}
      </PageHead>
      <div class="stack">
        {refusal !== null && <ProblemBox problem={refusal} onClose={() => setRefusal(null)} />}
        <WhyAlone view={view} />
        <Figures view={view} />
        <div class="grid-side">
          <Blocks blocks={view.blocks} />
          <div class="stack">
            <Pairing view={view} />
            <Cache view={view} />
            <TimeSpent view={view} />
            {view.invariants.length > 0 && <Invariants view={view} />}
          </div>
        </div>
        {view.linkChanges.length > 0 && <LinkChanges view={view} />}
        {heard.length > 0 && (
          <Panel title="Events" flush>
            <EventList rows={heard} withNode={false} />
          </Panel>
        )}
      </div>
    </>
  );
}

/** Before all else where nobody drafts for it: that is what makes it slower. */
function WhyAlone({ view }: { view: SessionView }) {
  const found = alone(view);
  if (found === null) return null;
  return (
    <p class="why-alone">
      <span class={found.dropped ? "tag warn" : "tag plain"}>
        {found.dropped ? "alone now" : "alone"}
      </span>
      {found.why}
    </p>
  );
}

/** How its blocks are spread, and the latest of them where they differ. */
function Blocks({ blocks }: { blocks: readonly BlockView[] }) {
  if (blocks.length === 0) {
    return (
      <Panel title="Blocks" flush>
        <Empty title="No blocks yet">They appear with the first generated token.</Empty>
      </Panel>
    );
  }
  const drafted = blocks.some((block) => block.drafted > 0);
  return (
    <div class="stack">
      {drafted && (
        <Panel
          title="Tokens a forward"
          note={`of the last ${plural(blocks.length, "forward")}`}
          flush
        >
          <Bars bins={keptBins(blocks)} what="Forwards by the tokens that each kept" />
        </Panel>
      )}
      <Panel
        title="Time of a forward"
        note={
          drafted ? "waiting for drafts included" : `of the last ${blocks.length}, a token each`
        }
        flush
      >
        <Bars bins={timeBins(blocks)} what="Forwards by the time that each took" />
      </Panel>
      {drafted && (
        <Panel
          title="Last blocks"
          note="latest first; upper bar: proposer, lower bar: verifier"
          flush
        >
          <Timeline blocks={blocks} rowCount={ROWS} />
        </Panel>
      )}
    </div>
  );
}

interface EndingProps {
  view: SessionView;
  onRefused: (why: Problem) => void;
}

/** Ends the session, once that was confirmed. */
function Ending({ view: { nodeId, sessionId }, onRefused }: EndingProps) {
  const [state, setState] = useState<"" | "asked" | "ending">("");
  const end = (): void => {
    setState("ending");
    endSession(nodeId, sessionId).catch((error: unknown) => {
      setState("");
      if (!(error instanceof ProblemError)) throw error;
      onRefused(error.problem);
    });
  };
  return (
    <span class="end">
      {state === "asked" ? (
        <>
          <span class="quiet small">Its history is gone with it.</span>
          <button type="button" class="button danger" onClick={end}>
            Close it
          </button>
          <button type="button" class="button" onClick={() => setState("")}>
            Keep
          </button>
        </>
      ) : (
        <button
          type="button"
          class="button"
          disabled={state === "ending"}
          onClick={() => setState("asked")}
        >
          Close
        </button>
      )}
    </span>
  );
}

function Figures({ view }: { view: SessionView }) {
  const acceptance = view.draftedCount > 0 ? view.acceptedCount / view.draftedCount : Number.NaN;
  const length =
    view.verifyForwardCount > 0 ? view.generatedTokenCount / view.verifyForwardCount : Number.NaN;
  return (
    <section class="panel key-figures plain" aria-label="Key figures">
      <Figure label="Speed" value={tokenRate(view.tokensPerSecond)} unit="tok/s" />
      <Figure
        label="Acceptance length"
        value={Number.isNaN(length) ? NONE : length.toFixed(2)}
        unit="tokens a forward"
      />
      <Figure
        label="Drafts accepted"
        value={percent(acceptance)}
        unit={`of ${count(view.draftedCount)}`}
      />
      <Figure label="History" value={count(view.historyLength)} unit="tokens" />
      <Figure
        label="Generated"
        value={count(view.generatedTokenCount)}
        unit={`in ${count(view.generationCount)}`}
      />
    </section>
  );
}

export function Figure({ label, value, unit }: { label: string; value: string; unit: string }) {
  return (
    <div class="key-figure">
      <h2>{label}</h2>
      <p class="figure-value">
        <Value text={value} unit={unit} />
      </p>
    </div>
  );
}

function Pairing({ view }: { view: SessionView }) {
  const reasons = otherReasons(view);
  return (
    <Panel title="Pairing">
      {view.proposerNodeId === "" && view.dropReason === "" ? (
        <p class="quiet">It decodes alone.</p>
      ) : (
        <dl class="pairs">
          <dt>Proposer</dt>
          <dd>
            {modelName(view.proposerModelId)}
            {view.proposerNodeId !== "" && (
              <>
                {" "}
                on <NodeLink nodeId={view.proposerNodeId} />
              </>
            )}
          </dd>
          <dt>Carried by</dt>
          <dd>{TRANSPORT_NAME[view.transport]}</dd>
          <dt>Block size</dt>
          <dd>{view.blockSize}</dd>
        </dl>
      )}
      {reasons.length > 0 && (
        <ul class="reasons">
          {reasons.map((reason) => (
            <li key={reason}>{reason}</li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

/** The constant K/V beside the history that it stands for. */
function Cache({ view }: { view: SessionView }) {
  const whole = Math.max(1, view.historyLength);
  const resident = Math.min(whole, view.residentTokenCount);
  const sink = Math.min(resident, view.kvStrategy === "full" ? 0 : view.sinkTokens);
  const evicted = whole - resident;
  const share = (tokens: number): string => `${(tokens / whole) * 100}%`;
  return (
    <Panel title="K/V" note={view.kvStrategy.replaceAll("_", " + ")}>
      <p class="figure-value kv-value">
        {bytes(view.kvBytes)}{" "}
        <small>{view.kvStrategy === "full" ? "grows with it" : "constant"}</small>
      </p>
      <div
        class="kv-bar"
        role="img"
        aria-label={`${count(resident)} of ${count(view.historyLength)} tokens are resident, ${count(evicted)} evicted`}
      >
        <i class="sink" style={{ width: share(sink) }} />
        <i class="evicted" style={{ width: share(evicted) }} />
        <i class="window" style={{ width: share(resident - sink) }} />
      </div>
      <dl class="pairs">
        <dt>History</dt>
        <dd>{count(view.historyLength)}</dd>
        <dt>Resident</dt>
        <dd>
          {count(view.residentTokenCount)}
          {view.kvStrategy !== "full" && (
            <span class="quiet small">
              {" "}
              sink {view.sinkTokens}, window {count(view.windowTokens)}
            </span>
          )}
        </dd>
        {view.evictedTokenCount > 0 && (
          <>
            <dt>{view.kvStrategy === "full" ? "Packed" : "Evicted"}</dt>
            <dd>
              {count(view.evictedTokenCount)}
              <span class="quiet small">
                {" "}
                {bytes(view.evictedBytes)}
                {view.evictedCodec !== "" && `, packed by ${view.evictedCodec}`}
              </span>
            </dd>
          </>
        )}
        {view.archiveNodeIds.length > 0 && (
          <>
            <dt>Kept by</dt>
            <dd>
              {view.archiveNodeIds.map((nodeId, index) => (
                <span key={nodeId}>
                  {index > 0 && ", "}
                  <NodeLink nodeId={nodeId} />
                </span>
              ))}
            </dd>
          </>
        )}
        {view.rebuildCount > 0 && (
          <>
            <dt>Rebuilt</dt>
            <dd>{view.rebuildCount} times</dd>
          </>
        )}
        {view.recomputedTokenCount > 0 && (
          <>
            <dt>Computed again</dt>
            <dd>{plural(view.recomputedTokenCount, "token")}</dd>
          </>
        )}
        {(view.state === "idle" || view.state === "resting") && view.ttlSeconds > 0 && (
          <EvictedIn view={view} />
        )}
      </dl>
      {view.state === "resting" && (
        <div class="drop">
          <span class="tag">rests</span>
          <Mend text="Another session has its memory: its next operation computes its keys and values again, and begins later." />
        </div>
      )}
      {view.forgottenTokenCount > 0 && (
        <div class="drop">
          <span class="tag warn">forgets</span>
          <Mend
            text={`${count(view.forgottenTokenCount)} tokens of the history are seen no more: a restored or a full session sees them all.`}
          />
        </div>
      )}
    </Panel>
  );
}

function EvictedIn({ view }: { view: SessionView }) {
  const left = view.ttlSeconds - (second.value - view.idleSince) / 1000;
  return (
    <>
      <dt>Evicted in</dt>
      <dd>{duration(Math.max(0, Math.round(left)))}</dd>
    </>
  );
}

function TimeSpent({ view }: { view: SessionView }) {
  const parts = [
    { name: "draft", seconds: view.draftSeconds },
    { name: "wire", seconds: view.wireSeconds },
    { name: "wait", seconds: view.waitSeconds },
    { name: "verify", seconds: view.verifySeconds },
  ];
  const most = Math.max(...parts.map((part) => part.seconds), 1e-9);
  return (
    <Panel title="Time spent" note="all generations">
      <dl class="spent">
        {parts.map(({ name, seconds }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <Meter share={seconds / most} label={`${name} ${duration(seconds)}`} tone={name} />
              <span>{duration(seconds)}</span>
            </dd>
          </div>
        ))}
        <div>
          <dt>prefill</dt>
          <dd>
            <span class="quiet small">{count(view.prefilledTokenCount)} tokens</span>
            <span>{duration(view.prefillSeconds)}</span>
          </dd>
        </div>
      </dl>
    </Panel>
  );
}

/** What the node checks of the session's promises. A violation ends it. */
function Invariants({ view }: { view: SessionView }) {
  return (
    <Panel title="Promises" note="checked so far">
      <dl class="pairs">
        {view.invariants.map(({ name, checkCount, violationCount }) => (
          <Fragment key={name}>
            <dt>{name.replaceAll("_", " ")}</dt>
            <dd>
              {plural(checkCount, "time")}
              {violationCount > 0 && <span class="tag bad">{violationCount} broken</span>}
            </dd>
          </Fragment>
        ))}
      </dl>
    </Panel>
  );
}

function LinkChanges({ view }: { view: SessionView }) {
  return (
    <Panel title="Link changes" flush>
      <div class="scroll">
        <table class="table">
          <thead>
            <tr>
              <th scope="col">To</th>
              <th scope="col">For</th>
              <th scope="col">With</th>
              <th scope="col">Why</th>
            </tr>
          </thead>
          <tbody>
            {view.linkChanges.map((change, index) => (
              <tr key={index}>
                <td class="nowrap">{TRANSPORT_NAME[change.transport]}</td>
                <td>{change.purpose}</td>
                <td>
                  <NodeLink nodeId={change.peerNodeId} />
                </td>
                <td class="quiet">{change.reason === "" ? "—" : change.reason}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
