import { Empty } from "../parts/empty";
import { PageHead } from "../parts/page_head";
import { Panel } from "../parts/panel";
import { href } from "../parts/route";

export function NotFound() {
  return (
    <>
      <PageHead title="Nothing here" />
      <Panel title="This address names no view">
        <Empty title="Nothing is at this address">
          <a class="link" href={href("fleet")}>
            To the fleet
          </a>
        </Empty>
      </Panel>
    </>
  );
}
