import { signal } from "@preact/signals";

import type { DiskQuestion, PullView, TransferView } from "../../../shared/messages";
import { Confirm, useConfirm } from "../confirm";
import { Mend, ProblemBox } from "../problem";
import { sourceTexts } from "./pull_sources";
import { asked, askedKey, beginRemove, dismiss, mayChange } from "./serving";

/** Names a transfer in the fleet; a node that was started again counts them anew. */
export function transferKey({ nodeId, transferId, startedAt }: TransferView): string {
  return `${nodeId}/${transferId}/${startedAt}`;
}

/** Keys of those that failed and were read, or were given up here. */
export const putAway = signal<ReadonlySet<string>>(new Set());

export function putTransferAway(transfer: TransferView): void {
  putAway.value = new Set([...putAway.peek(), transferKey(transfer)]);
}

interface PullPartProps {
  transfer: TransferView;
  pull: PullView;
}

/** Of a pull: whom it copies from, what mends it, and its end before its time. */
export function PullPart({ transfer, pull }: PullPartProps) {
  const { nodeId, modelId } = transfer;
  const question: DiskQuestion = { nodeId, model: modelId };
  const key = askedKey("remove", question);
  const state = asked.value.get(key);
  const runs = transfer.state === "running";
  const confirming = useConfirm(() => {
    void beginRemove(question).then((done) => {
      if (done) putTransferAway(transfer);
    });
  });
  return (
    <div class="pull-part">
      <div class="pull-from quiet small">
        {sourceTexts(pull).map((text) => (
          <p key={text}>{text}</p>
        ))}
        {transfer.state === "failed" && pull.problem !== null && <Mend text={pull.problem.mend} />}
      </div>
      {runs && mayChange(nodeId) && !confirming.isOpen && state?.state !== "asking" && (
        <button type="button" class="text-button" ref={confirming.opener} onClick={confirming.ask}>
          Give up
          <span class="unseen"> the copy of {modelId}</span>
        </button>
      )}
      {runs && (
        <Confirm
          confirming={confirming}
          label="Give up the copy?"
          words="What has come of it goes, too."
          yes="Give up"
          no="Go on"
        />
      )}
      {state?.state === "refused" && (
        <div class="pull-problem">
          <ProblemBox problem={state.problem} onClose={() => dismiss(key)} />
        </div>
      )}
    </div>
  );
}
