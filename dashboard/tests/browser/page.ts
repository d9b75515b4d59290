import type { Browser, BrowserContext, Page } from "playwright-core";

export type Theme = "light" | "dark";

/** What the page took back itself, in Chromium's words and in Firefox's. */
const ABORTED = new Set(["net::ERR_ABORTED", "NS_BINDING_ABORTED"]);

/** What the page said about itself that it should not have: errors, refused files. */
export class Complaints {
  readonly list: string[] = [];

  watch(page: Page): void {
    page.on("pageerror", (error) => this.list.push(`error: ${error.message}`));
    page.on("console", (message) => {
      if (message.type() === "error" || message.type() === "warning") {
        this.list.push(`${message.type()}: ${message.text()}`);
      }
    });
    page.on("requestfailed", (request) => {
      // Streams end, and questions are taken back, when a view goes.
      if (ABORTED.has(request.failure()?.errorText ?? "")) return;
      this.list.push(`failed: ${request.url()}`);
    });
  }
}

/** Opens `view` (such as "plan" or "node/ID") of the dashboard at `url`. */
export async function open(
  browser: Browser,
  url: string,
  view: string,
  look: { width?: number; height?: number; theme?: Theme; motion?: boolean } = {},
): Promise<{ page: Page; context: BrowserContext; complaints: Complaints }> {
  const { width = 1440, height = 900, theme = "dark", motion = false } = look;
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: theme,
    // Pictures and rules are judged at rest.
    reducedMotion: motion ? "no-preference" : "reduce",
  });
  const page = await context.newPage();
  const complaints = new Complaints();
  complaints.watch(page);
  await page.goto(`${url}#/${view}`);
  return { page, context, complaints };
}
