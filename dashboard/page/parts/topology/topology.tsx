/** The fleet as machines in rows, and what runs between them. It is a list of links, too. */

import { computed } from "@preact/signals";
import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import type { NodeView } from "../../../shared/messages";
import { node, nodeIds, nodes, sessions } from "../../state/fleet";
import { second } from "../clock";
import { draftsAccepted } from "../acceptance";
import { CROWD } from "../crowd";
import { activitiesOf, rolesOf, type Activity } from "../activity";
import { busyMachines } from "../cores";
import { ago, bytes, clipped, duration, percent, plural } from "../format";
import { href } from "../route";
import { nodesEachSecond } from "../slow_nodes";
import { isDown, nodeState, usedBytes, usedShare } from "../states";
import { svgPath, type Box } from "./curve";
import { Device } from "./device";
import { drawEdges, labelOf, machinesOf, type DrawnEdge } from "./drawing";
import { edgesOf, edgeStructure, roundTripsFrom } from "./edges";
import { FlowDots } from "./flow";
import { rowsFor, type Size } from "./rows";
import { seated, type Seating } from "./seating";

const structure = computed(() => edgeStructure(nodes.value, sessions.value));

/** Anew each second for the figures, and at once when links come, go or change. */
const edges = computed(() => {
  void structure.value;
  void second.value;
  return edgesOf(nodes.peek(), sessions.peek());
});

/** Anew each second: what is busy of each machine's cores, by the node at which it is told. */
const busy = computed(() => busyMachines(nodesEachSecond.value));

let lastShapes: ReadonlyMap<string, string> = new Map();

/** What the machines are drawn as, by node id; changes when a card is heard, hardly ever. */
const shapes = computed((): ReadonlyMap<string, string> => {
  const told = new Map(nodes.value.map(({ nodeId, shape }) => [nodeId, shape]));
  const before = lastShapes;
  if (before.size === told.size && [...told].every(([id, shape]) => before.get(id) === shape)) {
    return before;
  }
  return (lastShapes = told);
});

export function Topology() {
  const place = useRef<HTMLDivElement>(null);
  const width = useWidth(place);
  const [chosen, setChosen] = useState("");
  const kept = useRef<Seating>([]);
  const ids = nodeIds.value;
  const seating = useMemo(() => (kept.current = seated(kept.current, ids)), [ids]);
  const rows = useMemo(() => rowsFor(seating.length, width), [seating.length, width]);
  const drawnAs = shapes.value;
  const machines = useMemo(() => machinesOf(rows, seating, drawnAs), [rows, seating, drawnAs]);
  const known = machines.has(chosen) ? chosen : "";
  const current = edges.value;
  const drawn = useMemo(
    () => drawEdges(current, machines, rows, known),
    [current, machines, rows, known],
  );
  const roundTrips = useMemo(
    () => roundTripsFrom(known === "" ? gatewayId() : known, current),
    [current, known],
  );
  return (
    <div class="topology" ref={place} style={{ height: `${rows.height}px` }}>
      {width > 0 && (
        <>
          <Lines drawn={drawn} width={width} height={rows.height} asking={known !== ""} />
          <div class="flows" aria-hidden="true">
            {drawn
              .filter((each) => (known === "" ? seating.length < CROWD : each.chosen))
              .flatMap(({ edge, curve }) =>
                edge.flows.map((flow) => (
                  <FlowDots
                    key={`${edge.key}${flow.kind}${flow.from}`}
                    curve={curve}
                    backwards={flow.from !== edge.one}
                    kind={flow.kind}
                  />
                )),
              )}
          </div>
          <ul class={`machines ${rows.size.name}`} aria-label="Nodes">
            {[...machines].map(([nodeId, box]) => (
              <Machine
                key={nodeId}
                nodeId={nodeId}
                box={box}
                size={rows.size}
                roundTripSeconds={roundTrips.get(nodeId) ?? 0}
                dim={known !== "" && !touches(drawn, known, nodeId)}
                onChoose={setChosen}
              />
            ))}
          </ul>
          <div class="labels" aria-hidden="true">
            {drawn.map(
              ({ edge, label, place: at, chosen: own }) =>
                at !== undefined && (
                  <span
                    key={edge.key}
                    class={own || edge.kind !== "way" ? "strong" : ""}
                    style={{ transform: `translate(${at.x}px, ${at.y}px) translate(-50%, -50%)` }}
                  >
                    {label}
                  </span>
                ),
            )}
          </div>
        </>
      )}
      <EdgeTable drawn={drawn} />
    </div>
  );
}

function touches(drawn: readonly DrawnEdge[], chosen: string, nodeId: string): boolean {
  return (
    nodeId === chosen ||
    drawn.some(
      ({ edge, chosen: own }) =>
        own && edge.kind !== "way" && (edge.one === nodeId || edge.other === nodeId),
    )
  );
}

interface LinesProps {
  drawn: readonly DrawnEdge[];
  width: number;
  height: number;
  /** A node is asked about: other nodes' lines step back. */
  asking: boolean;
}

const Lines = memo(function Lines({ drawn, width, height, asking }: LinesProps) {
  return (
    <svg class="lines" width={width} height={height} aria-hidden="true">
      <defs>
        <marker
          id="arrow"
          viewBox="0 0 8 8"
          refX="7"
          refY="4"
          markerWidth="7"
          markerHeight="7"
          markerUnits="userSpaceOnUse"
          orient="auto-start-reverse"
        >
          <path d="M0.500 0.800 7 4 0.500 7.200z" />
        </marker>
      </defs>
      {drawn.map(({ edge, curve, chosen, place }) => {
        const path = svgPath(curve);
        const classes = ["edge", edge.kind];
        if (edge.down) classes.push("down");
        if (edge.breakerOpen) classes.push("shut");
        if (edge.flows.length > 0) classes.push("flowing");
        if (chosen) classes.push("own");
        else if (asking) classes.push("back");
        return (
          <g key={edge.key} class={classes.join(" ")}>
            <path d={path} {...arrows(edge)} />
            {edge.kind === "ring" && !edge.down && <path class="core" d={path} />}
            {place?.far === true && (
              <path
                class="leader"
                d={`M${place.anchor.x.toFixed(1)} ${place.anchor.y.toFixed(1)}L${place.x.toFixed(1)} ${place.y.toFixed(1)}`}
              />
            )}
          </g>
        );
      })}
    </svg>
  );
});

function arrows(edge: DrawnEdge["edge"]): { "marker-start"?: string; "marker-end"?: string } {
  const drafts = edge.flows.filter((flow) => flow.kind === "draft");
  return {
    ...(drafts.some((flow) => flow.from === edge.one) ? { "marker-end": "url(#arrow)" } : {}),
    ...(drafts.some((flow) => flow.from === edge.other) ? { "marker-start": "url(#arrow)" } : {}),
  };
}

interface MachineProps {
  nodeId: string;
  box: Box;
  size: Size;
  /** From the node that is asked about, else from the gateway; 0 for itself and while unmeasured. */
  roundTripSeconds: number;
  dim: boolean;
  onChoose: (nodeId: string) => void;
}

const Machine = memo(function Machine(props: MachineProps) {
  const { nodeId, box, size, roundTripSeconds, dim, onChoose } = props;
  const view = node(nodeId).value;
  if (view === undefined) return null;
  const down = isDown(view);
  const [known, ...others] = activitiesOf(view);
  const cores = busy.value.get(nodeId);
  const left = box.x - box.width / 2;
  const top = box.y - box.height / 2;
  const classes = ["machine"];
  if (down) classes.push("down");
  if (dim) classes.push("dim");
  return (
    <li
      class={classes.join(" ")}
      style={{
        width: `${box.width}px`,
        height: `${box.height}px`,
        transform: `translate(${left}px, ${top}px)`,
      }}
    >
      <a
        href={href("node", nodeId)}
        onPointerEnter={() => onChoose(nodeId)}
        onPointerLeave={() => onChoose("")}
        onFocus={() => onChoose(nodeId)}
        onBlur={() => onChoose("")}
      >
        <span class="unseen">{description(view, cores, roundTripSeconds)}</span>
        <span
          class="machine-picture"
          aria-hidden="true"
          style={{ height: `${size.deviceHeight}px` }}
        >
          <Device
            shape={view.shape}
            width={size.deviceWidth}
            height={size.deviceHeight}
            share={down ? 0 : usedShare(view)}
            tone={nodeState(view).tone}
            plain={size.deviceWidth < 50}
          />
          <span class={`machine-rate ${view.shape}`}>
            {down ? (
              <b class={`machine-gone ${view.liveness}`}>{view.liveness}</b>
            ) : (
              known !== undefined && (
                <>
                  <b>{size.name === "large" ? known.roomy : known.short}</b>
                  <small>{known.roomyUnit}</small>
                </>
              )
            )}
          </span>
        </span>
        <span class="machine-name" aria-hidden="true" title={view.name}>
          {clipped(view.name)}
        </span>
        <span class="machine-roles" aria-hidden="true">
          {!down && size.name !== "small" && (
            <Roles view={view} others={others} roomy={size.name === "large"} />
          )}
        </span>
        <span class="machine-way" aria-hidden="true">
          {down ? (
            <DeadSince view={view} />
          ) : (
            below(view, roundTripSeconds, size.name === "large" ? cores : undefined)
          )}
        </span>
      </a>
    </li>
  );
});

interface RolesProps {
  view: NodeView;
  others: readonly Activity[];
  /** There is room for what an archive may keep. */
  roomy: boolean;
}

/**
 * Its roles; those that the picture tells nothing of, with what it does in them. Beside a
 * proposer's, how much of its drafts is accepted.
 */
function Roles({ view, others, roomy }: RolesProps) {
  const accepted = draftsAccepted.value.get(view.nodeId);
  return (
    <>
      {rolesOf(view).map((role) => {
        const doing = others.find((each) => each.role === role);
        return (
          <i key={role} class={role}>
            {role[0]!.toUpperCase()}
            {doing !== undefined && (
              <span>
                {roomy && role === "archive"
                  ? `${doing.roomy} ${doing.roomyUnit}`
                  : `${doing.short} ${doing.shortUnit}`}
              </span>
            )}
            {role === "proposer" && accepted !== undefined && <span>{percent(accepted)}</span>}
          </i>
        );
      })}
    </>
  );
}

function DeadSince({ view }: { view: NodeView }) {
  return <>{ago(view.heardAt, second.value)}</>;
}

/** What stands below a machine: `0.42 ms · CPU 37 %`, as far as it is known. */
function below(view: NodeView, roundTripSeconds: number, cores: number | undefined): string {
  const parts = [];
  if (roundTripSeconds > 0) parts.push(duration(roundTripSeconds));
  else if (view.isSelf) parts.push("gateway");
  if (cores !== undefined) parts.push(`CPU ${percent(cores)}`);
  return parts.join(" · ") || "\u00a0";
}

/** A machine in words, for who does not see it. */
function description(view: NodeView, cores: number | undefined, roundTripSeconds: number): string {
  const parts = [view.name, nodeState(view).word];
  parts.push(...rolesOf(view));
  if (!isDown(view)) {
    parts.push(...activitiesOf(view).map(({ words }) => words));
    parts.push(`${bytes(usedBytes(view))} of ${bytes(view.memoryTotalBytes)} memory in use`);
    if (cores !== undefined) parts.push(`${percent(cores)} of its cores in use`);
    if (roundTripSeconds > 0) parts.push(`round trip ${duration(roundTripSeconds)}`);
  }
  return parts.join(", ");
}

/** The links as a table, for who does not see the lines. */
function EdgeTable({ drawn }: { drawn: readonly DrawnEdge[] }) {
  const open = drawn.filter(({ edge }) => edge.kind !== "way");
  return (
    <div class="unseen">
      <p>{plural(open.length, "open link")}</p>
      <ul>
        {open.map(({ edge }) => (
          <li key={edge.key}>
            {nameOf(edge.one)} to {nameOf(edge.other)}: {labelOf(edge, false)}
            {edge.down ? ", down" : ""}
            {edge.flows.map((flow) =>
              flow.kind === "draft"
                ? `, ${nameOf(flow.from)} drafts for ${nameOf(flow.to)}`
                : `, ${nameOf(flow.to)} keeps evicted context of ${nameOf(flow.from)}`,
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}

function gatewayId(): string {
  return nodes.peek().find(({ isSelf }) => isSelf)?.nodeId ?? "";
}

function nameOf(nodeId: string): string {
  return node(nodeId).peek()?.name ?? nodeId;
}

/** The width of the element, in whole pixels, as it changes; 0 before it is laid out. */
function useWidth(place: { current: HTMLDivElement | null }): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    setWidth(Math.floor(place.current?.clientWidth ?? 0));
  }, []);
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const observer = new ResizeObserver(() => setWidth(Math.floor(element.clientWidth)));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return width;
}
