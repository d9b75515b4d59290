import { useEffect, useRef } from "preact/hooks";

import type { TransferView } from "../../../shared/messages";
import { transfers } from "../../state/fleet";
import { second } from "../clock";
import { Panel } from "../panel";
import { byteRate } from "../format";
import { TransferList } from "../transfer_list";
import { PullPart, putAway, putTransferAway, transferKey } from "./pull_part";

/** Milliseconds for which one that has ended well stays, fading. */
const STAYS_MS = 8000;
/** Milliseconds after its beginning up to which one that failed is shown. */
const FAILED_MS = 6 * 3600_000;

const below = (transfer: TransferView) =>
  transfer.pull !== null && <PullPart transfer={transfer} pull={transfer.pull} />;

/** Downloads, copies and loads that run, those that just ended, and those that failed. */
export function UnderWay() {
  const now = second.value;
  const ended = useRef(new Map<string, number>());
  const ran = useRef(new Set<string>());
  for (const transfer of transfers.value) {
    const key = transferKey(transfer);
    if (transfer.state === "running") ran.current.add(key);
    else if (ran.current.delete(key)) ended.current.set(key, now);
  }
  useEffect(() => {
    for (const [key, at] of ended.current) if (now - at > STAYS_MS) ended.current.delete(key);
  });
  const shown = transfers.value.filter((transfer) => {
    const { state, startedAt } = transfer;
    const key = transferKey(transfer);
    if (state === "running") return true;
    if (state === "failed") return !putAway.value.has(key) && now - startedAt < FAILED_MS;
    return now - (ended.current.get(key) ?? 0) <= STAYS_MS;
  });
  if (shown.length === 0) return null;
  const running = shown.filter(({ state }) => state === "running");
  const rate = running.reduce((sum, { bytesPerSecond }) => sum + bytesPerSecond, 0);
  return (
    <Panel title="On their way" note={rate > 0 ? byteRate(rate) : ""} flush>
      <TransferList transfers={shown} onPutAway={putTransferAway} below={below} />
    </Panel>
  );
}
