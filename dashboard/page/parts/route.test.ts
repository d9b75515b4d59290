import { describe, expect, it } from "vitest";

import { href, parseRoute } from "./route";

describe("addresses", () => {
  it.each(["", "#", "#/"])("%j is the fleet", (hash) => {
    expect(parseRoute(hash).view).toBe("fleet");
  });

  it("come back as they were, whatever is in an id", () => {
    for (const id of ["node-1", "a/b", "ä %/?#&", "100%"]) {
      const query = { model: "org/name?x=1&y" };
      const route = parseRoute(href("session", id, query));
      expect(route.view).toBe("session");
      expect(route.id).toBe(id);
      expect(route.query.get("model")).toBe(query.model);
    }
  });

  it("with a broken escape are taken as typed", () => {
    expect(parseRoute("#/node/%E0%A4%A").id).toBe("%E0%A4%A");
  });
});
