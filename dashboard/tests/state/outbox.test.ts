import { expect, test } from "vitest";

import { Outbox } from "../../server/state/outbox";
import type { Message } from "../../shared/messages";
import { blockView, eventView, fleetView, nodeView, sampleView, sessionView } from "../views";

function outbox(): { box: Outbox; sent: Message[] } {
  const sent: Message[] = [];
  return { box: new Outbox((messages) => sent.push(...messages)), sent };
}

const { samples: _samples, ...node } = nodeView("a");
const { blocks: _blocks, ...session } = sessionView("a", "s1");

test("changes of one session become one, with the blocks of all", () => {
  const { box, sent } = outbox();
  box.put({ type: "session", session, blocks: [blockView(0)] });
  box.put({ type: "session", session: { ...session, historyLength: 9 }, blocks: [blockView(4)] });
  box.flush();
  expect(sent).toHaveLength(1);
  expect(sent[0]).toMatchObject({
    session: { historyLength: 9 },
    blocks: [{ firstIndex: 0 }, { firstIndex: 4 }],
  });
});

test("samples and events all go, in their order, and the latest node", () => {
  const { box, sent } = outbox();
  box.put({ type: "node", node });
  box.put({ type: "sample", nodeId: "a", sample: sampleView(1) });
  box.put({ type: "event", event: eventView("a", 1) });
  box.put({ type: "node", node: { ...node, draining: true } });
  box.put({ type: "sample", nodeId: "a", sample: sampleView(2) });
  box.flush();
  expect(sent.map(({ type }) => type)).toEqual(["sample", "event", "node", "sample"]);
  expect(sent[2]).toMatchObject({ node: { draining: true } });
});

test("a session that ended and its node's next snapshot keep their order", () => {
  const { box, sent } = outbox();
  box.put({ type: "session", session, blocks: [blockView(0)] });
  box.put({ type: "session-ended", nodeId: "a", sessionId: "s1", outcome: "lost" });
  box.flush();
  expect(sent.map(({ type }) => type)).toEqual(["session", "session-ended"]);
});

test("a whole fleet makes what waited void", () => {
  const { box, sent } = outbox();
  box.put({ type: "sample", nodeId: "a", sample: sampleView(1) });
  box.put({ type: "fleet", fleet: fleetView(["a"]), now: 0 });
  box.put({ type: "sample", nodeId: "a", sample: sampleView(2) });
  box.flush();
  expect(sent.map(({ type }) => type)).toEqual(["fleet", "sample"]);
});
