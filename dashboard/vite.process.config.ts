import { defineConfig } from "vite";

/**
 * Builds a program for Node into one file with all that it uses:
 * `vite build --config vite.process.config.ts --mode server` (or synthetic).
 */
export default defineConfig(({ mode }) => ({
  resolve: { conditions: ["node"] },
  ssr: { noExternal: true, target: "node" },
  build: {
    ssr: `${mode}/main.ts`,
    outDir: `dist/${mode}`,
    emptyOutDir: true,
    // What is bundled is passed on under its own licenses.
    license: { fileName: "LICENSES.md" },
    target: "node20",
    minify: false,
    rollupOptions: {
      output: { entryFileNames: "main.mjs", codeSplitting: false },
    },
  },
}));
