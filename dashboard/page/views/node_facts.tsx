/** What a node is, and what it does in each of its roles. */

import { computed } from "@preact/signals";

import type { NodeView } from "../../shared/messages";
import { second } from "../parts/clock";
import { CopyButton } from "../parts/copy";
import { useOf } from "../parts/cores";
import { activitiesOf, draftAcceptances } from "../parts/activity";
import { NodeLink } from "../parts/event_list";
import { bytes, bytesOf, duration, percent, span } from "../parts/format";
import { neighbours } from "../parts/hosts";
import { memoryTone, Meter } from "../parts/meter";
import { hasRole, isDown, nodeState, usedBytes, usedShare, type RoleName } from "../parts/states";
import { Device } from "../parts/topology/device";
import { nodes, sessions } from "../state/fleet";
import { Figure } from "./session";

/** The protocol versions that most of the fleet speaks at best. */
const usualProtocol = computed(() => {
  const votes = new Map<number, number>();
  for (const each of nodes.value) {
    votes.set(each.protocolMax, (votes.get(each.protocolMax) ?? 0) + 1);
  }
  return [...votes].sort((one, other) => other[1] - one[1])[0]?.[0] ?? 0;
});

export function Facts({ view }: { view: NodeView }) {
  const memory = bytesOf(usedBytes(view), view.memoryTotalBytes);
  const skewed = view.protocolMax !== usualProtocol.value;
  const protocol =
    view.protocolMin === view.protocolMax
      ? `${view.protocolMax}`
      : `${view.protocolMin} to ${view.protocolMax}`;
  const beside = neighbours(view, nodes.value);
  return (
    <section class="panel node-head" aria-label="Facts">
      <div class="node-portrait">
        <Device
          shape={view.shape}
          width={132}
          height={94}
          share={isDown(view) ? 0 : usedShare(view)}
          tone={nodeState(view).tone}
        />
      </div>
      <div class="node-facts">
        <div class="node-figures">
          <RoleFigures view={view} />
          <div class="key-figure">
            <h2>Memory in use</h2>
            <p class="figure-value">
              {memory.part}{" "}
              <small>
                / {memory.whole} {memory.unit}
              </small>
            </p>
            <Meter
              share={usedShare(view)}
              tone={memoryTone(usedShare(view))}
              label={`Memory, ${percent(usedShare(view))}`}
            />
          </div>
          <UseFigures view={view} />
          {hasRole(view, "verifier") && <HeldFigures view={view} />}
        </div>
        <dl class="facts">
          <Fact name="Address">
            <code>{view.address}</code>
          </Fact>
          <Fact name="Machine">
            {[view.platform, view.accelerator].filter((part) => part !== "").join(" · ") || "—"}
            {beside.length > 0 && (
              <span class="quiet">
                {" "}
                · its memory and cores are shared with{" "}
                {beside.map(({ nodeId }, index) => (
                  <span key={nodeId}>
                    {index > 0 && ", "}
                    <NodeLink nodeId={nodeId} />
                  </span>
                ))}
              </span>
            )}
          </Fact>
          <Fact name="Software">{view.softwareVersion || "—"}</Fact>
          <Fact name="Protocol">
            {protocol}
            {skewed && (
              <>
                {" "}
                <span class="tag warn">most speak {usualProtocol.value}</span>
              </>
            )}
          </Fact>
          <Fact name="Running for">
            {view.startedAt > 0 ? span((second.value - view.startedAt) / 1000) : "—"}
          </Fact>
          <Fact name="Round trip from here">
            {view.roundTripSeconds > 0 ? duration(view.roundTripSeconds) : "—"}
          </Fact>
          <Fact name="Ring">{view.ringAddress || "not advertised"}</Fact>
          <Fact name="HTTP">
            {view.httpAddress === "" ? "off" : <code>{view.httpAddress}</code>}
          </Fact>
          <Fact name="Node id">
            <span class="node-id">
              <code class="clip" title={view.nodeId}>
                {view.nodeId}
              </code>
              <CopyButton text={view.nodeId} label="Copy the node id" />
            </span>
          </Fact>
        </dl>
      </div>
    </section>
  );
}

/** How busy what computes is; nothing of what is not told. */
function UseFigures({ view }: { view: NodeView }) {
  const { cores, own, accelerator } = useOf(view);
  return (
    <>
      {cores !== null && (
        <div class="key-figure">
          <h2>CPU in use</h2>
          <p class="figure-value">
            {percent(cores)} {own !== null && <small>{percent(own)} its own</small>}
          </p>
          <Meter share={cores} label={`CPU, ${percent(cores)}`} />
        </div>
      )}
      {accelerator !== null && (
        <div class="key-figure">
          <h2>Accelerator in use</h2>
          <p class="figure-value">{percent(accelerator)}</p>
          <Meter share={accelerator} label={`Accelerator, ${percent(accelerator)}`} />
        </div>
      )}
    </>
  );
}

/** What a verifier holds for its sessions. */
function HeldFigures({ view }: { view: NodeView }) {
  return (
    <>
      <div class="key-figure">
        <h2>K/V</h2>
        <p class="figure-value">
          {bytes(view.kvBytes)}{" "}
          {view.kvBudgetBytes > 0 && <small>/ {bytes(view.kvBudgetBytes)}</small>}
        </p>
        <Meter
          share={view.kvBudgetBytes > 0 ? view.kvBytes / view.kvBudgetBytes : 0}
          label="K/V of its budget"
        />
      </div>
      <Figure
        label="Sessions"
        value={`${view.generatingCount}`}
        unit={`generating / ${view.sessionCount} open`}
      />
    </>
  );
}

/** A figure for each of its roles. */
function RoleFigures({ view }: { view: NodeView }) {
  const accepted = draftAcceptances(sessions.value).get(view.nodeId);
  return (
    <>
      {activitiesOf(view).map(({ role, value, unit }) => (
        <Figure
          key={role}
          label={ROLE_FIGURE[role]}
          value={value}
          unit={role === "archive" ? `${unit} of ${bytes(view.archiveBudgetBytes)}` : unit}
        />
      ))}
      {hasRole(view, "proposer") && (
        <Figure
          label="Drafts accepted"
          value={percent(accepted ?? Number.NaN)}
          unit="of open sessions'"
        />
      )}
    </>
  );
}

const ROLE_FIGURE: Readonly<Record<RoleName, string>> = {
  verifier: "Speed",
  proposer: "Drafts",
  archive: "Archive",
};

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
