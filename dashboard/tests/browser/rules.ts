import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import type { Page } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface Result {
  violations: { id: string; help: string; nodes: { target: string[] }[] }[];
}

/** What axe finds wrong with the page as it is, one line each. */
export async function violations(page: Page): Promise<string[]> {
  // Half a megabyte, once a page.
  if (!(await page.evaluate(`"axe" in window`))) await page.evaluate(AXE);
  // What is right is not described: that takes as long as to look.
  const result = (await page.evaluate(`axe.run(document, { reporter: "no-passes" })`)) as Result;
  return result.violations.flatMap(({ id, help, nodes }) =>
    nodes.slice(0, 3).map(({ target }) => `${id}: ${target.join(" ")}: ${help}`),
  );
}

/** A move of what was on the page, as a part of the window, and which elements moved. */
export interface Shift {
  readonly value: number;
  readonly moved: readonly string[];
}

/** Begins to note the layout shifts that no input caused. */
export async function watchShifts(page: Page): Promise<void> {
  await page.evaluate(() => {
    const noted: Shift[] = [];
    (window as unknown as { shifts: Shift[] }).shifts = noted;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries() as (PerformanceEntry & {
        value: number;
        hadRecentInput: boolean;
        sources: { node: Node | null; previousRect: DOMRect; currentRect: DOMRect }[];
      })[]) {
        if (entry.hadRecentInput) continue;
        const moved = entry.sources.map(({ node, previousRect, currentRect }) => {
          const what = node instanceof Element ? node.outerHTML.slice(0, 80) : node?.nodeName;
          return `${what}: ${previousRect.x}, ${previousRect.y} to ${currentRect.x}, ${currentRect.y}`;
        });
        noted.push({ value: entry.value, moved });
      }
    }).observe({ type: "layout-shift" });
  });
}

/** Those since `watchShifts`. */
export async function shifts(page: Page): Promise<Shift[]> {
  return page.evaluate(() => (window as unknown as { shifts: Shift[] }).shifts);
}
