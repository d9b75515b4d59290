/** Tokenizers that nodes sent, kept on the disk by their content. */

import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";

import { TokenizerMismatch } from "./errors.js";

/** All files that matter to text; the first must be there. */
export const TOKENIZER_FILES = [
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "chat_template.jinja",
  "generation_config.json",
  "config.json",
] as const;

/** All files of a tokenizer together. */
const MAX_TOKENIZER_BYTES = 64 * 1024 * 1024;
const SHA256 = /^[0-9a-f]{64}$/;

/** The files of a tokenizer, by name. */
export type TokenizerFiles = ReadonlyMap<string, Uint8Array>;

/** A file of a tokenizer, as a node announces it; `sha256` is hexadecimal. */
export interface AnnouncedFile {
  readonly name: string;
  readonly byteCount: number;
  readonly sha256: string;
}

/** What a node says that it will send, in the order of the bytes. */
export class AnnouncedTokenizer {
  readonly byteCount: number;

  /**
   * Refuses what no tokenizer is: names from the network become names of files.
   * Throws TokenizerMismatch.
   */
  constructor(
    readonly digest: string,
    readonly files: readonly AnnouncedFile[],
  ) {
    const names = files.map((file) => file.name);
    const known: ReadonlySet<string> = new Set(TOKENIZER_FILES);
    if (
      names.some((name) => !known.has(name)) ||
      new Set(names).size < names.length ||
      names[0] !== TOKENIZER_FILES[0]
    ) {
      throw mismatch("files that are no tokenizer's", names.join(", "));
    }
    this.byteCount = files.reduce((sum, file) => sum + file.byteCount, 0);
    if (this.byteCount > MAX_TOKENIZER_BYTES) {
      throw mismatch("more than 64 MiB", `${this.byteCount} bytes`);
    }
    if (!files.every((file) => SHA256.test(file.sha256))) {
      throw mismatch("digests that are none", files.map((file) => file.sha256).join(", "));
    }
    if (digest !== files[0]?.sha256) {
      throw mismatch(`another ${TOKENIZER_FILES[0]} than its digest`, digest);
    }
  }

  /** Names the content of all files: SHA-256 of their lines "NAME SHA256", hexadecimal. */
  get key(): string {
    return sha256(this.files.map((file) => `${file.name} ${file.sha256}\n`).join(""));
  }

  /** The files of the bytes that came. Throws TokenizerMismatch when they differ. */
  split(content: Uint8Array): TokenizerFiles {
    if (content.length !== this.byteCount) {
      throw mismatch("another number of bytes", `${content.length} of ${this.byteCount}`);
    }
    const files = new Map<string, Uint8Array>();
    let start = 0;
    for (const { name, byteCount } of this.files) {
      files.set(name, content.subarray(start, start + byteCount));
      start += byteCount;
    }
    if (!this.#describes(files)) {
      throw mismatch("other bytes than announced", "the digests differ");
    }
    return files;
  }

  /** The files as `cache` keeps them; null when it has not all of them, or others. */
  async read(cache: string): Promise<TokenizerFiles | null> {
    try {
      const files = new Map<string, Uint8Array>();
      for (const { name } of this.files) {
        files.set(name, await readFile(join(cache, this.key, name)));
      }
      return this.#describes(files) ? files : null;
    } catch (error) {
      if (isSystemError(error)) {
        return null;
      }
      throw error;
    }
  }

  /**
   * Keeps the files; other processes see all of them or none. Gives whether the
   * disk took them: a disk that does not costs the next client a download.
   */
  async write(cache: string, files: TokenizerFiles): Promise<boolean> {
    try {
      await mkdir(cache, { recursive: true });
      const made = await mkdtemp(join(cache, "."));
      try {
        for (const [name, content] of files) {
          await writeFile(join(made, name), content);
        }
        await place(made, join(cache, this.key), cache);
      } finally {
        await rm(made, { recursive: true, force: true });
      }
      return true;
    } catch (error) {
      if (isSystemError(error)) {
        return false;
      }
      throw error;
    }
  }

  #describes(files: TokenizerFiles): boolean {
    return this.files.every(({ name, sha256: digest }) => {
      const content = files.get(name);
      return content !== undefined && sha256(content) === digest;
    });
  }
}

/** Where tokenizers are kept: `$XDG_CACHE_HOME/kakeya/tokenizers`, by default in ~/.cache. */
export function cacheFolder(): string {
  const base = process.env["XDG_CACHE_HOME"] ?? "";
  // The specification ignores a path that is not absolute.
  return join(isAbsolute(base) ? base : join(homedir(), ".cache"), "kakeya", "tokenizers");
}

/** Gives a whole folder its name; of several processes the last one wins. */
async function place(made: string, target: string, cache: string): Promise<void> {
  try {
    await rename(made, target);
    return;
  } catch (error) {
    if (!isSystemError(error)) {
      throw error;
    }
  }
  // Another process was first, or what was there is damaged: both make room.
  const aside = await mkdtemp(join(cache, "."));
  try {
    await rename(target, join(aside, "replaced"));
    await rename(made, target);
  } finally {
    await rm(aside, { recursive: true, force: true });
  }
}

function sha256(content: string | Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}

function isSystemError(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}

function mismatch(what: string, detail: string): TokenizerMismatch {
  return new TokenizerMismatch(
    `the node sent ${what}: try another node, or give the model's folder`,
    { metadata: { detail } },
  );
}
