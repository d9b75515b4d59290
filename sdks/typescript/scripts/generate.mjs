/**
 * Generates the messages and services of proto/ into src/generated.
 *
 * `--check` writes nothing there, and exits with 1 when the tree differs from
 * what the .proto files give.
 */

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
const ROOT = join(PACKAGE, "..", "..");
const TARGET = join(PACKAGE, "src", "generated");
const TOOLS = join(ROOT, "node_modules", ".bin");

/** Writes the messages below `target`, in place of those that are there. */
function generate(target) {
  files(target).forEach((name) => rmSync(join(target, name)));
  const template = JSON.stringify({
    version: "v2",
    plugins: [
      {
        local: join(TOOLS, "protoc-gen-es"),
        out: target,
        opt: ["target=ts", "import_extension=js"],
      },
    ],
  });
  for (const source of [join(ROOT, "proto"), join(PACKAGE, "wire")]) {
    execFileSync(join(TOOLS, "buf"), ["generate", source, "--template", template], {
      stdio: "inherit",
    });
  }
}

/** Paths of all messages' files below `folder`, relative to it; values beside them are others. */
function files(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith("_pb.ts"))
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)));
}

/** Files that are missing, stale or orphaned in the tree. */
function differences() {
  const fresh = mkdtempSync(join(tmpdir(), "kakeya-generated-"));
  try {
    generate(fresh);
    const held = new Set(files(TARGET));
    const wanted = new Set(files(fresh));
    const stale = [...wanted].filter(
      (name) =>
        !held.has(name) ||
        !readFileSync(join(TARGET, name)).equals(readFileSync(join(fresh, name))),
    );
    return [...stale, ...[...held].filter((name) => !wanted.has(name))].sort();
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

if (process.argv.includes("--check")) {
  const stale = differences();
  if (stale.length > 0) {
    console.error(
      [
        "generated code differs from proto/, run `npm run generate -w @kakeya/runtime`:",
        ...stale,
      ].join("\n  "),
    );
    process.exit(1);
  }
  console.log("generated code matches proto/");
} else {
  generate(TARGET);
  console.log(`wrote ${files(TARGET).length} files`);
}
