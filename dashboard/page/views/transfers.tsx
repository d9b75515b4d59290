import { Empty } from "../parts/empty";
import { byteRate, plural } from "../parts/format";
import { ModelGrid } from "../parts/model_grid";
import { PageHead } from "../parts/page_head";
import { Panel } from "../parts/panel";
import { TransferList } from "../parts/transfer_list";
import { transfers } from "../state/fleet";

export function TransfersView() {
  const running = transfers.value.filter((transfer) => transfer.state === "running");
  const rate = running.reduce((sum, transfer) => sum + transfer.bytesPerSecond, 0);
  return (
    <>
      <PageHead title="Transfers">
        <span class="lede">Models on their way to disk and into memory</span>
      </PageHead>
      <div class="stack">
        <Panel
          title={`${plural(running.length, "transfer")} running`}
          note={rate > 0 ? byteRate(rate) : ""}
          flush
        >
          {transfers.value.length === 0 ? (
            <Empty
              title="Nothing is on its way"
              command="fleet join --serve verifier=Qwen/Qwen3-4B"
            >
              A node that is given a model fetches it from the hub, or from a node that has it.
            </Empty>
          ) : (
            <TransferList transfers={transfers.value} />
          )}
        </Panel>
        <Panel title="Models" note="by node" flush>
          <ModelGrid />
        </Panel>
      </div>
    </>
  );
}
