import preact from "@preact/preset-vite";
import { defineConfig } from "vite";

/** Builds the page into dist/page; `dev.mjs` serves it with changes as they are written. */
export default defineConfig({
  root: "page",
  plugins: [preact({ reactAliasesEnabled: false, prefreshEnabled: true })],
  build: {
    outDir: "../dist/page",
    emptyOutDir: true,
    // What is bundled is passed on under its own licenses.
    license: { fileName: "LICENSES.md" },
    target: "es2022",
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
    // Nothing inline: the page's policy allows files of its own origin only.
    assetsInlineLimit: 0,
  },
});
