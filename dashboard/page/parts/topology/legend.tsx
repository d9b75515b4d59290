/** What the lines and letters of the topology mean. */
export function TopologyLegend() {
  return (
    <div class="topology-legend">
      <span>
        <Sample kind="ring" />
        ring
      </span>
      <span>
        <Sample kind="grpc" />
        gRPC
      </span>
      <span>
        <Sample kind="local" />
        shared memory
      </span>
      <span>
        <Sample kind="ids flowing" />
        drafts, ids alone
      </span>
      <span>
        <Sample kind="way down" />
        down
      </span>
      <span class="machine-roles">
        <i class="verifier">V</i>verifier
      </span>
      <span class="machine-roles">
        <i class="proposer">P</i>proposer
      </span>
      <span class="machine-roles">
        <i class="archive">A</i>archive
      </span>
    </div>
  );
}

function Sample({ kind }: { kind: string }) {
  return (
    <svg width="26" height="8" aria-hidden="true">
      <g class={`edge ${kind}`}>
        <path d="M2 4H24" />
        {kind === "ring" && <path class="core" d="M2 4H24" />}
      </g>
    </svg>
  );
}
