import { open, type FileHandle } from "node:fs/promises";

/** Of the file's end that is read, in bytes; older lines are for a pager. As `fleet logs` does. */
export const MOST_BYTES = 2 ** 20;

/** The end of a log file, and what is written to it later. Close it. */
export class LogTail {
  readonly #file: FileHandle;
  #position: number;
  /** The first line may be cut in two. */
  #skipsFirst: boolean;
  #rest = "";
  #decoder = new TextDecoder();

  private constructor(file: FileHandle, size: number) {
    this.#file = file;
    this.#position = Math.max(0, size - MOST_BYTES);
    this.#skipsFirst = this.#position > 0;
  }

  /** Throws what opening throws. */
  static async of(path: string): Promise<LogTail> {
    const file = await open(path, "r");
    return new LogTail(file, (await file.stat()).size);
  }

  /** The whole lines that were written since the last call; of very many, the next ones. */
  async lines(): Promise<string[]> {
    const { size } = await this.#file.stat();
    if (size < this.#position) {
      // Somebody emptied it.
      this.#position = 0;
      this.#rest = "";
      this.#decoder = new TextDecoder();
    }
    const length = Math.min(size - this.#position, MOST_BYTES);
    if (length === 0) return [];
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

  async close(): Promise<void> {
    await this.#file.close();
  }
}
