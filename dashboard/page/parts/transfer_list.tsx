import type { ComponentChildren } from "preact";
import { memo } from "preact/compat";

import type { TransferView } from "../../shared/messages";
import { NodeLink } from "./event_list";
import { byteRate, bytesOf, duration, percent } from "./format";
import { Icon } from "./icon";
import { Meter } from "./meter";

interface Additions {
  /** Given where one that failed may be put away. */
  onPutAway?: (transfer: TransferView) => void;
  /** What stands below one; the same function every time. */
  below?: (transfer: TransferView) => ComponentChildren;
}

/** Downloads and loads, those that run first, then the latest. */
export function TransferList({
  transfers,
  ...additions
}: Additions & { transfers: readonly TransferView[] }) {
  const sorted = [...transfers].sort(
    (one, other) =>
      Number(other.state === "running") - Number(one.state === "running") ||
      other.startedAt - one.startedAt,
  );
  return (
    <ul class={additions.onPutAway === undefined ? "transfers" : "transfers fading"}>
      {sorted.map((transfer) => (
        <TransferRow
          key={`${transfer.nodeId}/${transfer.transferId}`}
          transfer={transfer}
          {...additions}
        />
      ))}
    </ul>
  );
}

const TransferRow = memo(function TransferRow({
  transfer,
  onPutAway,
  below,
}: Additions & { transfer: TransferView }) {
  const { state, modelId, doneBytes, totalBytes } = transfer;
  const kind = (transfer.pull?.sources.length ?? 0) > 0 ? "copy" : transfer.kind;
  const known = totalBytes > 0;
  const share = state === "done" ? 1 : known ? doneBytes / totalBytes : 0;
  const size = bytesOf(doneBytes, known ? totalBytes : doneBytes);
  const checked = kind === "load" && state === "running" && known && doneBytes >= totalBytes;
  return (
    <li class={`transfer ${state}`}>
      <div class="transfer-name">
        <strong class="clip" title={modelId}>
          {modelId}
        </strong>
        <span class="quiet small">
          {kind !== "load" ? kind : checked ? "checked and measured" : "load into memory"} ·{" "}
          <NodeLink nodeId={transfer.nodeId} />
        </span>
      </div>
      <div class="transfer-bar">
        <Meter
          share={share}
          tone={state === "failed" ? "bad" : ""}
          label={`${kind} of ${modelId}, ${percent(share)}`}
        />
        <span class="transfer-figures small">
          <span>
            {size.part}
            {known && <span class="quiet"> / {size.whole}</span>} {size.unit}
          </span>
          {state === "running" && (
            <>
              <span>{byteRate(transfer.bytesPerSecond)}</span>
              <span class="quiet">
                {transfer.remainingSeconds > 0 ? `${duration(transfer.remainingSeconds)} left` : ""}
              </span>
            </>
          )}
        </span>
        {transfer.error !== "" && <p class="transfer-error small">{transfer.error}</p>}
      </div>
      <span class="transfer-share">
        {state === "failed" ? (
          <span class="transfer-failed">
            <span class="tag bad">failed</span>
            {onPutAway !== undefined && (
              <button
                type="button"
                class="icon-button"
                aria-label={`Put away: ${kind} of ${modelId}`}
                onClick={() => onPutAway(transfer)}
              >
                <Icon name="cross" size={13} />
              </button>
            )}
          </span>
        ) : state === "done" ? (
          <span class="tag good">done</span>
        ) : (
          percent(share)
        )}
      </span>
      {below?.(transfer)}
    </li>
  );
});
