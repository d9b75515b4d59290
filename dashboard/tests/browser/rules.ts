import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import type { Page } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface Result {
  violations: { id: string; nodes: { target: string[]; failureSummary: string }[] }[];
}

/** What axe finds wrong with the page as it is, one line each. */
export async function violations(page: Page): Promise<string[]> {
  // Half a megabyte, once a page.
  if (!(await page.evaluate(`"axe" in window`))) await page.evaluate(AXE);
  const result = (await page.evaluate(`axe.run(document)`)) as Result;
  return result.violations.flatMap(({ id, nodes }) =>
    nodes.slice(0, 3).map((node) => `${id}: ${node.target.join(" ")}: ${node.failureSummary}`),
  );
}

/** Begins to sum the layout shifts that no input caused. */
export async function watchShifts(page: Page): Promise<void> {
  await page.evaluate(() => {
    const sums = window as unknown as { shifted: number };
    sums.shifted = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries() as (PerformanceEntry & {
        value: number;
        hadRecentInput: boolean;
      })[]) {
        if (!entry.hadRecentInput) sums.shifted += entry.value;
      }
    }).observe({ type: "layout-shift" });
  });
}

/** The sum since `watchShifts`. */
export async function shifted(page: Page): Promise<number> {
  return page.evaluate(() => (window as unknown as { shifted: number }).shifted);
}
