import { defineConfig } from "vitest/config";

/** Unit tests beside what they test and in tests/; those of tests/browser need Chromium and the build. */
export default defineConfig({
  oxc: { jsx: { importSource: "preact" } },
  test: {
    include: ["page/**/*.test.{ts,tsx}", "tests/**/*.test.ts"],
    // Browsers and fleets: one file at a time on a small machine.
    fileParallelism: false,
    testTimeout: 90_000,
    hookTimeout: 120_000,
  },
});
