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

interface Look {
  width?: number;
  height?: number;
  theme?: Theme;
  motion?: boolean;
}

const looks = ({ width = 1440, height = 900, theme = "dark", motion = false }: Look) => ({
  viewport: { width, height },
  colorScheme: theme,
  // Pictures and rules are judged at rest.
  reducedMotion: motion ? ("no-preference" as const) : ("reduce" as const),
});

/** Opens `view` (such as "plan" or "node/ID") of the dashboard at `url`. */
export async function open(
  browser: Browser,
  url: string,
  view: string,
  look: Look = {},
): Promise<{ page: Page; context: BrowserContext; complaints: Complaints }> {
  const context = await browser.newContext(looks(look));
  const page = await context.newPage();
  const complaints = new Complaints();
  complaints.watch(page);
  await page.goto(`${url}#/${view}`);
  return { page, context, complaints };
}

/**
 * A dashboard's one page for all tests of a file, which each get it as a new one would be: loaded
 * once more, with nothing kept, nobody who listens, and the mouse where it began. A process and a
 * storage of its own take as long as many a test.
 */
export class OnePage {
  readonly #browser: Browser;
  readonly #url: string;
  #page: Page | undefined;

  constructor(browser: Browser, url: string) {
    this.#browser = browser;
    this.#url = url;
  }

  async open(view: string, look: Look = {}): Promise<{ page: Page; complaints: Complaints }> {
    if (this.#page === undefined) {
      const { page, complaints } = await open(this.#browser, this.#url, view, look);
      this.#page = page;
      return { page, complaints };
    }
    const page = this.#page;
    for (const event of ["pageerror", "console", "requestfailed", "request"]) {
      page.removeAllListeners(event);
    }
    await page.unrouteAll();
    const { viewport, ...media } = looks(look);
    await page.setViewportSize(viewport);
    await page.emulateMedia(media);
    await page.mouse.move(0, 0);
    await page.evaluate((hash) => {
      localStorage.clear();
      // It is told to nobody: the view that was there does not go before the page does.
      history.replaceState(null, "", hash);
    }, `#/${view}`);
    const complaints = new Complaints();
    complaints.watch(page);
    await page.reload();
    return { page, complaints };
  }

  async close(): Promise<void> {
    await this.#page?.context().close();
  }
}
