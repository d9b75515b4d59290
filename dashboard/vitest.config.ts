import { defineConfig } from "vitest/config";

/** Unit tests beside what they test and in tests/; those of tests/browser need Chromium and the build. */
export default defineConfig({
  oxc: { jsx: { importSource: "preact" } },
  test: {
    // Browsers and fleets: one file at a time on a small machine.
    fileParallelism: false,
    testTimeout: 90_000,
    hookTimeout: 120_000,
    // They leave nothing behind in their process: one for each file takes longer than its tests.
    isolate: false,
    tags: [
      {
        name: "wide",
        description: "what another test holds already, once more: by `make test-wide`",
      },
    ],
    projects: [
      {
        extends: true,
        test: {
          name: "units",
          include: ["page/**/*.test.{ts,tsx}", "tests/state/*.test.ts"],
        },
      },
      {
        extends: true,
        test: {
          name: "processes",
          include: ["tests/**/*.test.ts"],
          exclude: ["tests/state/*.test.ts"],
        },
      },
    ],
  },
});
