import { useEffect, useRef, useState } from "preact/hooks";

import type { TransferView } from "../../../shared/messages";
import { transfers } from "../../state/fleet";
import { second } from "../clock";
import { Panel } from "../panel";
import { byteRate } from "../format";
import { TransferList } from "../transfer_list";

/** Milliseconds for which one that has ended well stays, fading. */
const STAYS_MS = 8000;
/** Milliseconds after its beginning up to which one that failed is shown. */
const FAILED_MS = 6 * 3600_000;

const keyOf = ({ nodeId, transferId }: TransferView): string => `${nodeId}/${transferId}`;

/** Downloads and loads that run, those that just ended, and those that failed. */
export function UnderWay() {
  const now = second.value;
  const ended = useRef(new Map<string, number>());
  const ran = useRef(new Set<string>());
  const [put, setPut] = useState<ReadonlySet<string>>(new Set());
  for (const transfer of transfers.value) {
    const key = keyOf(transfer);
    if (transfer.state === "running") ran.current.add(key);
    else if (ran.current.delete(key)) ended.current.set(key, now);
  }
  useEffect(() => {
    for (const [key, at] of ended.current) if (now - at > STAYS_MS) ended.current.delete(key);
  });
  const shown = transfers.value.filter((transfer) => {
    const { state, startedAt } = transfer;
    const key = keyOf(transfer);
    if (state === "running") return true;
    if (state === "failed") return !put.has(key) && now - startedAt < FAILED_MS;
    return now - (ended.current.get(key) ?? 0) <= STAYS_MS;
  });
  if (shown.length === 0) return null;
  const running = shown.filter(({ state }) => state === "running");
  const rate = running.reduce((sum, { bytesPerSecond }) => sum + bytesPerSecond, 0);
  return (
    <Panel title="On their way" note={rate > 0 ? byteRate(rate) : ""} flush>
      <TransferList
        transfers={shown}
        onPutAway={(transfer) => setPut(new Set([...put, keyOf(transfer)]))}
      />
    </Panel>
  );
}
