import { expect, test } from "vitest";

import { Gateways } from "../../server/watch/gateways";

const [NAMED, HERE, MOVED, PEER] = ["10.0.0.1:7600", "127.0.0.1:1", "127.0.0.1:2", "10.0.0.2:7600"];

test("any node of this machine is asked, once there is one", () => {
  const gateways = new Gateways("");
  expect(gateways.candidates([])).toEqual([]);
  expect(gateways.waitingFor).toBe("a node of this machine");
  expect(gateways.locals([HERE])).toBe(true);
  expect(gateways.locals([HERE])).toBe(false);
  expect(gateways.candidates([])).toEqual([HERE]);
});

test("a named node is waited for, whatever else runs here", () => {
  const gateways = new Gateways(NAMED);
  gateways.locals([HERE]);
  expect(gateways.candidates([])).toEqual([NAMED]);
  expect(gateways.waitingFor).toBe(`a node at ${NAMED}`);
});

test("a node that came back on another port is asked, after its own fleet's living", () => {
  const gateways = new Gateways(NAMED);
  gateways.answered(NAMED, "home");
  gateways.lost(NAMED);
  gateways.locals([MOVED]);
  expect(gateways.candidates([PEER])).toEqual([PEER, MOVED, NAMED]);
  expect(gateways.waitingFor).toBe("a node of the fleet “home”");
});

test("a fleet that was seen is not replaced by another one, but at the address that was named", () => {
  const gateways = new Gateways("");
  expect(gateways.accepts(HERE, "home")).toBe(true);
  gateways.answered(HERE, "home");
  expect(gateways.accepts(MOVED, "home")).toBe(true);
  expect(gateways.accepts(HERE, "lab")).toBe(false);
  const named = new Gateways(NAMED);
  named.answered(NAMED, "home");
  expect(named.accepts(NAMED, "lab")).toBe(true);
});
