import { fileURLToPath } from "node:url";

import { defineConfig } from "vitest/config";

export default defineConfig({
  // The Electron example's main process runs in a test, which is no Electron.
  resolve: {
    alias: { electron: fileURLToPath(new URL("tests/electron-stand-in.ts", import.meta.url)) },
  },
  test: {
    include: ["tests/**/*.test.ts"],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    expect: { poll: { timeout: 20_000 } },
    // Two workers beside the nodes that they start.
    maxWorkers: 2,
    // They leave nothing behind in it: what each file would import anew takes a third of their time.
    isolate: false,
    tags: [
      {
        name: "wide",
        description: "what another test holds already, once more: by `make test-wide`",
      },
    ],
  },
});
