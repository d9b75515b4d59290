import { useId } from "preact/hooks";

import type { DiskQuestion } from "../../../shared/messages";
import { transfers } from "../../state/fleet";
import { second } from "../clock";
import { Confirm, useConfirm } from "../confirm";
import { NodeLink } from "../event_list";
import { ago, bytes, dateTime, NONE } from "../format";
import { ProblemBox } from "../problem";
import { Value } from "../value";
import { latestDownload, type Disk } from "./disks";
import { asked, askedKey, beginRemove, dismiss, mayChange } from "./serving";

/** Where a model was copied to, each copy with its size; those that may be are removed from here. */
export function DiskList({ modelId, disks }: { modelId: string; disks: readonly Disk[] }) {
  const title = useId();
  if (disks.length === 0) {
    return (
      <p class="quiet small">
        Copies on disks: <Value text={NONE} />
      </p>
    );
  }
  return (
    <div>
      <h3 class="quiet small" id={title}>
        Copies on disks
      </h3>
      <ul class="holders" aria-labelledby={title}>
        {disks.map((disk) => (
          <DiskRow key={disk.nodeIds.join()} {...{ modelId, disk }} />
        ))}
      </ul>
    </div>
  );
}

function DiskRow({ modelId, disk }: { modelId: string; disk: Disk }) {
  const question: DiskQuestion = { nodeId: disk.askedNodeId, model: modelId };
  const key = askedKey("remove", question);
  const state = asked.value.get(key);
  const download = latestDownload(transfers.value, modelId, disk.nodeIds);
  // One that has just come is whole once the node was asked again.
  const coming = !disk.isWhole && (download === "running" || download === "done");
  const confirming = useConfirm(() => void beginRemove(question));
  const { pulledAt, sourceNames } = disk;
  return (
    <li class="holder">
      <span class="holder-name">
        <span class="clip">
          {disk.nodeIds.map((nodeId, index) => (
            <span key={nodeId}>
              {index > 0 && ", "}
              <NodeLink nodeId={nodeId} />
            </span>
          ))}
        </span>
      </span>
      <span
        class="quiet small holder-since"
        title={
          pulledAt > 0 ? `${dateTime(pulledAt)}${whence(sourceNames)}` : whence(sourceNames).trim()
        }
      >
        {coming ? "comes now" : bytes(disk.bytes)}
        {disk.isWhole && pulledAt > 0 && ` · ${ago(pulledAt, second.value)}`}
        {!disk.isWhole && !coming && ", not all of it"}
      </span>
      <span class="holder-act">
        {state?.state === "asking" ? (
          <span class="quiet small" role="status">
            removing
          </span>
        ) : (
          mayChange(disk.askedNodeId) &&
          !confirming.isOpen && (
            <button
              type="button"
              class="text-button"
              ref={confirming.opener}
              onClick={confirming.ask}
            >
              Remove
              <span class="unseen"> the copy of {modelId}</span>
            </button>
          )
        )}
      </span>
      <Confirm
        confirming={confirming}
        label="Remove the copy?"
        words={
          coming
            ? "It is coming: that ends, and what has come goes."
            : "Its files go from that disk. Nothing else does."
        }
        yes="Remove"
        no="Keep"
      />
      {state?.state === "refused" && (
        <div class="holder-problem">
          <ProblemBox problem={state.problem} onClose={() => dismiss(key)} />
        </div>
      )}
    </li>
  );
}

function whence(names: readonly string[]): string {
  return names.length === 0 ? "" : ` from ${names.join(", ")}`;
}
