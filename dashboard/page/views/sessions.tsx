import { memo } from "preact/compat";

import type { SessionView } from "../../shared/messages";
import { alone } from "../parts/alone";
import { State } from "../parts/badges";
import { second } from "../parts/clock";
import { Empty } from "../parts/empty";
import { NodeLink } from "../parts/event_list";
import {
  ago,
  bytes,
  clipped,
  count,
  modelName,
  NONE,
  percent,
  plural,
  tokenRate,
} from "../parts/format";
import { verifierModels } from "../parts/model_choice";
import { PageHead } from "../parts/page_head";
import { Panel } from "../parts/panel";
import { href } from "../parts/route";
import { sessionState, TRANSPORT_NAME } from "../parts/states";
import { Value } from "../parts/value";
import { endedSessions, session, sessionKey, sessionKeys } from "../state/fleet";

export function SessionsView() {
  const keys = [...sessionKeys.value].reverse();
  const ended = [...endedSessions.value].reverse();
  const hasVerifier = verifierModels.value.length > 0;
  return (
    <>
      <PageHead title="Sessions" />
      <div class="stack">
        <Panel title={`${plural(keys.length, "session")} open`} note="latest first" flush>
          {keys.length > 0 ? (
            <SessionTable keys={keys} />
          ) : hasVerifier ? (
            <Empty
              title="No session is open"
              command={`fleet generate --verifier ${verifierModels.value[0]} 'Once upon a time'`}
            >
              One is opened by an application, by a{" "}
              <a class="link" href={href("chat")}>
                chat
              </a>
              , or by the command below.
            </Empty>
          ) : (
            <Empty title="No node verifies" command="fleet join --serve verifier=tiny">
              A session lives on a verifier. Start a node with one.
            </Empty>
          )}
        </Panel>
        {ended.length > 0 && (
          <Panel title="Ended since this page was opened" flush>
            <div class="scroll">
              <table class="table">
                <thead>
                  <tr>
                    <th scope="col">Session</th>
                    <th scope="col">Outcome</th>
                    <th scope="col" class="mid">
                      Model
                    </th>
                    <th scope="col" class="mid">
                      Node
                    </th>
                    <th scope="col" class="num">
                      Tokens
                    </th>
                    <th scope="col" class="num">
                      Ended
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {ended.map(({ session: view, outcome, endedAt }) => (
                    <tr key={sessionKey(view)}>
                      <th scope="row" title={sessionName(view)}>
                        {clipped(sessionName(view))}
                      </th>
                      <td>{outcome.replaceAll("_", " ")}</td>
                      <td class="mid">{modelName(view.modelId)}</td>
                      <td class="mid">
                        <NodeLink nodeId={view.nodeId} />
                      </td>
                      <td class="num">{count(view.generatedTokenCount)}</td>
                      <td class="num quiet">{ago(endedAt, second.value)}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          </Panel>
        )}
      </div>
    </>
  );
}

/** What its owner calls it, or the beginning of its id. */
export function sessionName(view: SessionView): string {
  return view.label !== "" ? view.label : view.sessionId.slice(0, 8);
}

/** Sessions by key; also of one node's page. */
export function SessionTable({ keys }: { keys: readonly string[] }) {
  return (
    <div class="scroll">
      <table class="table sessions">
        <thead>
          <tr>
            <th scope="col">Session</th>
            <th scope="col">State</th>
            <th scope="col" class="mid">
              Model
            </th>
            <th scope="col" class="mid">
              Verifier
            </th>
            <th scope="col" class="wide">
              Proposer
            </th>
            <th scope="col" class="num">
              tok/s
            </th>
            <th scope="col" class="num mid">
              History
            </th>
            <th scope="col" class="num wide">
              K/V
            </th>
            <th scope="col" class="num wide">
              Accepted
            </th>
          </tr>
        </thead>
        <tbody>
          {keys.map((key) => (
            <SessionRow key={key} sessionKeyOf={key} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

const SessionRow = memo(function SessionRow({ sessionKeyOf }: { sessionKeyOf: string }) {
  const view = session(sessionKeyOf).value;
  if (view === undefined) return null;
  const acceptance = view.draftedCount > 0 ? view.acceptedCount / view.draftedCount : Number.NaN;
  const single = alone(view);
  return (
    <tr class="to">
      <th scope="row">
        <a class="row-link" href={href("session", sessionKeyOf)}>
          <span class="session-name" title={sessionName(view)}>
            {clipped(sessionName(view))}
          </span>
        </a>
      </th>
      <td>
        <State {...sessionState(view)} />
      </td>
      <td class="mid">{modelName(view.modelId)}</td>
      <td class="mid">
        <NodeLink nodeId={view.nodeId} />
      </td>
      <td class="wide">
        {single !== null ? (
          <span class={single.dropped ? "tag warn" : "quiet"} title={single.why}>
            {single.dropped ? `alone: ${single.why}` : "alone"}
          </span>
        ) : (
          <>
            <NodeLink nodeId={view.proposerNodeId} />{" "}
            <span class="quiet small">{TRANSPORT_NAME[view.transport]}</span>
          </>
        )}
      </td>
      <td class="num cell-rate">
        <Value text={view.generationCount > 0 ? tokenRate(view.tokensPerSecond) : NONE} />
      </td>
      <td class="num mid">{count(view.historyLength)}</td>
      <td class="num wide">{bytes(view.kvBytes)}</td>
      <td class="num wide">
        <Value text={percent(acceptance)} />
      </td>
    </tr>
  );
});
