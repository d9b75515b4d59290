import { useState } from "preact/hooks";

import type { ModelView, NodeView } from "../../shared/messages";
import { problem } from "../../shared/problem";
import { kindName, RoleTag, State } from "../parts/badges";
import { second } from "../parts/clock";
import { Empty } from "../parts/empty";
import { EventList, NodeLink } from "../parts/event_list";
import { allRows } from "../parts/event_rows";
import {
  ago,
  byteRate,
  bytes,
  count,
  dateTime,
  duration,
  modelName,
  NONE,
  percent,
  plural,
  shortDigest,
} from "../parts/format";
import { linesOf } from "../parts/incidents";
import { lazyView } from "../parts/lazy";
import { Meter } from "../parts/meter";
import { PageHead } from "../parts/page_head";
import { Panel } from "../parts/panel";
import { ProblemBox } from "../parts/problem";
import { href } from "../parts/route";
import { Snippets } from "../parts/snippets";
import { hasRole, isArchive, isDown, nodeState, TRANSPORT_NAME } from "../parts/states";
import { TransferList } from "../parts/transfer_list";
import { Value } from "../parts/value";
import { node, sessionKeys, transfers } from "../state/fleet";
import { Charts } from "./node_charts";
import { Facts } from "./node_facts";
import { SessionTable } from "./sessions";

const NodeLog = lazyView(async () => (await import("./node_log")).NodeLog);

export function NodePage({ nodeId }: { nodeId: string }) {
  const view = node(nodeId).value;
  const crumb = { label: "Fleet", href: href("fleet") };
  if (view === undefined) {
    return (
      <>
        <PageHead title="Unknown node" crumb={crumb} />
        <Panel title="Node">
          <Empty title="No node has this id">
            <code>{nodeId}</code> left the fleet, or was never in it.
          </Empty>
        </Panel>
      </>
    );
  }
  const down = isDown(view);
  const own = sessionKeys.value.filter((key) => key.startsWith(`${nodeId}/`));
  const moving = transfers.value.filter((transfer) => transfer.nodeId === nodeId);
  const heard = allRows.value.filter((row) =>
    linesOf(row).some((event) => event.nodeId === nodeId || event.subjectNodeId === nodeId),
  );
  return (
    <>
      <PageHead title={view.name} crumb={crumb}>
        <State {...nodeState(view)} />
        <span class="row">
          {hasRole(view, "verifier") && <RoleTag role="verifier" />}
          {hasRole(view, "proposer") && <RoleTag role="proposer" />}
          {isArchive(view) && <RoleTag role="archive" />}
          {view.isSelf && <span class="tag plain">gateway</span>}
        </span>
      </PageHead>
      <div class="stack">
        {down && <Down view={view} />}
        {!down && !view.reachable && (
          <ProblemBox
            problem={{
              reason: "NODE_UNREACHABLE",
              message: `The dashboard does not reach ${view.name} since ${ago(view.heardAt, second.value)}: ${view.unreachableReason}`,
              mend: `See whether ${view.address} can be reached from the machine of the dashboard: fleet status`,
            }}
          />
        )}
        {!down &&
          view.seedFaults.map((fault) => <ProblemBox key={fault.address} problem={fault} />)}
        <Facts view={view} />
        <Charts view={view} />
        <Panel title="Models" flush>
          <Models models={view.models} />
        </Panel>
        {moving.length > 0 && (
          <Panel title="Transfers" flush>
            <TransferList transfers={moving} />
          </Panel>
        )}
        <div class="grid-2">
          <Panel title="Ways" note="measured round trips" flush>
            <Ways view={view} />
          </Panel>
          <div class="stack">
            <Panel title="Links" note="open tensor links" flush>
              <Links view={view} />
            </Panel>
            {hasRole(view, "verifier") && (
              <Panel title="Acceptance" note="as its verifiers measured it" flush>
                <Acceptances view={view} />
              </Panel>
            )}
          </div>
        </div>
        {(own.length > 0 || hasRole(view, "verifier")) && (
          <Panel title={plural(own.length, "session")} flush>
            {own.length === 0 ? (
              <Empty title="No session is open here" />
            ) : (
              <SessionTable keys={own} />
            )}
          </Panel>
        )}
        <Panel title="Events and faults" flush>
          {heard.length === 0 ? (
            <Empty title="Nothing happened here yet" />
          ) : (
            <EventList rows={heard.slice(-15)} withNode={false} />
          )}
        </Panel>
        {!down && <Log key={nodeId} nodeId={nodeId} name={view.name} />}
        {hasRole(view, "verifier") && (
          <Panel title="Use it from an application">
            <Snippets
              address={view.address}
              httpAddress={view.httpAddress}
              model={view.models.find((model) => model.role === "verifier")?.modelId ?? ""}
            />
          </Panel>
        )}
      </div>
    </>
  );
}

/** Followed once it is asked for: most who come here do not read it. */
function Log({ nodeId, name }: { nodeId: string; name: string }) {
  const [open, setOpen] = useState(false);
  return (
    <Panel
      title="Log"
      note="as it is written, with its events"
      flush
      end={
        <button
          type="button"
          class="button small"
          aria-expanded={open}
          onClick={() => setOpen(!open)}
        >
          {open ? "Close" : "Show"}
        </button>
      }
    >
      {open && <NodeLog nodeId={nodeId} name={name} />}
    </Panel>
  );
}

function Down({ view }: { view: NodeView }) {
  const left = view.liveness === "left";
  const heard = ago(view.heardAt, second.value);
  const last = "What follows is its last word.";
  const why = left
    ? problem("NODE_LEFT", `${view.name} left the fleet ${heard}. ${last}`)
    : problem(
        "NODE_DEAD",
        `${view.name} is dead; it was last heard ${heard}, at ${dateTime(view.heardAt)}. ${last}`,
      );
  return <ProblemBox problem={why} />;
}

function Models({ models }: { models: readonly ModelView[] }) {
  if (models.length === 0) {
    return (
      <Empty title="It serves no model" command="fleet join --serve verifier=tiny">
        A node is given models when it is started.
      </Empty>
    );
  }
  return (
    <div class="scroll">
      <table class="table">
        <thead>
          <tr>
            <th scope="col">Model</th>
            <th scope="col">Role</th>
            <th scope="col" class="mid">
              Kind
            </th>
            <th scope="col" class="mid">
              Format
            </th>
            <th scope="col" class="num">
              Step
            </th>
            <th scope="col" class="num wide">
              Context
            </th>
            <th scope="col" class="wide">
              Back end
            </th>
            <th scope="col" class="wide">
              Weights
            </th>
            <th scope="col" class="wide">
              Tokenizer
            </th>
          </tr>
        </thead>
        <tbody>
          {models.map((model) => (
            <tr key={`${model.modelId}/${model.role}`}>
              <th scope="row">
                {modelName(model.modelId)}
                {model.rankCount > 1 && <span class="tag plain">{model.rankCount} ranks</span>}
              </th>
              <td>
                <RoleTag role={model.role} />
              </td>
              <td class="mid">{kindName(model)}</td>
              <td class="mid quiet">
                {[model.quantization, model.dtype].filter((part) => part !== "").join(" · ") || "—"}
              </td>
              <td class="num">
                <Value text={model.stepSeconds > 0 ? duration(model.stepSeconds) : NONE} />
              </td>
              <td class="num wide">
                <Value text={model.contextLength > 0 ? count(model.contextLength) : NONE} />
              </td>
              <td class="wide quiet">{model.backend || "—"}</td>
              <td class="wide">
                <code title={model.weightsDigest}>{shortDigest(model.weightsDigest)}</code>
              </td>
              <td class="wide">
                <code title={model.tokenizerDigest}>{shortDigest(model.tokenizerDigest)}</code>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Ways({ view }: { view: NodeView }) {
  if (view.ways.length === 0) {
    return (
      <Empty title="No way is measured yet">Peers are probed in turn, once each few seconds.</Empty>
    );
  }
  const ways = [...view.ways].sort((one, other) => one.roundTripSeconds - other.roundTripSeconds);
  const most = Math.max(...ways.map((way) => way.roundTripSeconds));
  return (
    <div class="ways" tabIndex={0} role="region" aria-label="Ways, scrollable">
      <table class="table">
        <thead>
          <tr>
            <th scope="col">To</th>
            <th scope="col" class="num">
              Round trip
            </th>
            <th scope="col">
              <span class="unseen">Beside the longest</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {ways.map((way) => (
            <tr key={way.nodeId}>
              <th scope="row">
                <NodeLink nodeId={way.nodeId} />{" "}
                {way.breakerOpen && <span class="tag warn">shut out</span>}
              </th>
              <td class="num">{duration(way.roundTripSeconds)}</td>
              <td class="way-bar">
                <Meter
                  share={way.roundTripSeconds / most}
                  label="Share of the longest round trip"
                />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Links({ view }: { view: NodeView }) {
  if (view.links.length === 0) {
    return <Empty title="No tensor link is open">Drafts need none: they are ids alone.</Empty>;
  }
  return (
    <ul class="link-list">
      {view.links.map((link, index) => (
        <li key={index}>
          <div class="row">
            <NodeLink nodeId={link.peerNodeId} />
            <span class={link.transport === "ring" ? "tag verifier" : "tag"}>
              {TRANSPORT_NAME[link.transport]}
            </span>
            <span class="quiet small">{link.purpose}</span>
            <span class="link-rate">{byteRate(link.bytesPerSecond)}</span>
          </div>
          <p class="quiet small">
            {bytes(link.byteCount)} in {count(link.tensorCount)} tensors
            {link.demotionCount > 0 && `, demoted ${link.demotionCount} times`}
            {link.reason !== "" && ` · ${link.reason}`}
          </p>
        </li>
      ))}
    </ul>
  );
}

function Acceptances({ view }: { view: NodeView }) {
  if (view.acceptances.length === 0) return <Empty title="Nothing was drafted for it yet" />;
  return (
    <ul class="link-list">
      {view.acceptances.map((each) => (
        <li key={`${each.verifierModelId}/${each.proposerModelId}`}>
          <div class="row">
            <span>{modelName(each.proposerModelId)}</span>
            <span class="quiet">for {modelName(each.verifierModelId)}</span>
            <span class="link-rate">{percent(each.rate)}</span>
          </div>
          <Meter share={each.rate} label={`${percent(each.rate)} accepted`} />
          <p class="quiet small">
            {count(each.draftedCount)} drafted tokens
            {each.rateHigh > 0 &&
              ` · ${percent(each.rateLow)} to ${percent(each.rateHigh)} in four of five sessions`}
          </p>
        </li>
      ))}
    </ul>
  );
}
