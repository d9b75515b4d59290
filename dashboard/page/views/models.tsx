import "../styles/views/models.css";

import { computed } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";

import { Empty } from "../parts/empty";
import { plural } from "../parts/format";
import { Icon } from "../parts/icon";
import { ModelCard } from "../parts/models/model_card";
import { modelRows } from "../parts/models/model_rows";
import { ServeForm } from "../parts/models/serve_form";
import { lookAtRights } from "../parts/models/serving";
import { diskNews, keepLookingAtDisks, stored } from "../parts/models/stored";
import { UnderWay } from "../parts/models/under_way";
import { PageHead } from "../parts/page_head";
import { Panel } from "../parts/panel";
import { nodesByOffer } from "../parts/slow_nodes";
import { transfers } from "../state/fleet";

const rows = computed(() => modelRows(nodesByOffer.value, transfers.value, stored.value));
/** Who may answer; one string, so that equal lists are equal. */
const living = computed(() =>
  nodesByOffer.value.map(({ nodeId, liveness }) => `${nodeId}${liveness}`).join(),
);

/** What the fleet serves and has on its disks, what is on its way, and what may be changed from here. */
export function ModelsView() {
  const [serving, setServing] = useState(false);
  useEffect(() => {
    const left = new AbortController();
    void lookAtRights(left.signal);
    return () => left.abort();
  }, [living.value]);
  useEffect(keepLookingAtDisks, [diskNews.value]);
  const served = rows.value.filter(({ holders }) => holders.length > 0);
  return (
    <>
      <PageHead title="Models">
        <span class="lede">{plural(served.length, "model")} served</span>
        <span class="end">
          <button
            type="button"
            class="button"
            aria-expanded={serving}
            onClick={() => setServing(!serving)}
          >
            <Icon name={serving ? "cross" : "plus"} size={14} />
            {serving ? "Close" : "Load a model"}
          </button>
        </span>
      </PageHead>
      <div class="stack">
        {serving && (
          <Panel title="Load a model" note="into a node that runs; the others go on">
            <ServeForm />
          </Panel>
        )}
        <UnderWay />
        {rows.value.length === 0 ? (
          <Panel title="Models">
            <Empty title="No node serves a model" command="fleet load smollm2">
              A node that runs takes one with the command below; one that is started with it, with{" "}
              <code>fleet join --serve verifier=smollm2</code>.
            </Empty>
          </Panel>
        ) : (
          <div class="model-cards">
            {rows.value.map((row) => (
              <ModelCard key={row.modelId} row={row} />
            ))}
          </div>
        )}
      </div>
    </>
  );
}
