import { open, stat, type FileHandle } from "node:fs/promises";

/** Of the file's end that is read, in bytes; older lines are for a pager. As `fleet logs` does. */
export const MOST_BYTES = 2 ** 20;

/**
 * The end of a log file, and what is written to it later. Close it.
 *
 * A file that has become another one is read to its end, then the one in its place.
 */
export class LogTail {
  readonly #path: string;
  #file: FileHandle;
  #position: number;
  /** The first line may be cut in two. */
  #skipsFirst: boolean;
  #rest = "";
  #decoder = new TextDecoder();

  private constructor(path: string, file: FileHandle, size: number) {
    this.#path = path;
    this.#file = file;
    this.#position = Math.max(0, size - MOST_BYTES);
    this.#skipsFirst = this.#position > 0;
  }

  /** Throws what opening throws. */
  static async of(path: string): Promise<LogTail> {
    const file = await open(path, "r");
    return new LogTail(path, file, (await file.stat()).size);
  }

  /** The whole lines that were written since the last call; of very many, the next ones. */
  async lines(): Promise<string[]> {
    const isReplaced = await this.#isReplaced();
    const { size } = await this.#file.stat();
    // Somebody emptied it.
    if (size < this.#position) this.#beginAnew();
    const length = Math.min(size - this.#position, MOST_BYTES);
    if (length === 0) return isReplaced ? await this.#nextFile() : [];
    const { buffer, bytesRead } = await this.#file.read({
      buffer: Buffer.alloc(length),
      position: this.#position,
    });
    this.#position += bytesRead;
    const text = this.#rest + this.#decoder.decode(buffer.subarray(0, bytesRead), { stream: true });
    const whole = text.split("\n");
    this.#rest = whole.pop() ?? "";
    if (this.#skipsFirst && whole.length > 0) {
      this.#skipsFirst = false;
      whole.shift();
    }
    return whole.filter((line) => line !== "");
  }

  #beginAnew(): void {
    this.#position = 0;
    this.#rest = "";
    this.#decoder = new TextDecoder();
  }

  /** Whether there is another file in its place; not while there is none. */
  async #isReplaced(): Promise<boolean> {
    try {
      const [there, here] = await Promise.all([stat(this.#path), this.#file.stat()]);
      return there.ino !== here.ino || there.dev !== here.dev;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
      throw error;
    }
  }

  async #nextFile(): Promise<string[]> {
    const file = await open(this.#path, "r");
    await this.#file.close();
    this.#file = file;
    this.#beginAnew();
    return await this.lines();
  }

  async close(): Promise<void> {
    await this.#file.close();
  }
}
