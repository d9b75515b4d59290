/** One operation at a time. */
export class Turn {
  #last: Promise<unknown> = Promise.resolve();

  /** Runs `work` when all that was given before has ended; gives or throws what it does. */
  run<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#last.then(work);
    this.#last = mine.catch(() => undefined);
    return mine;
  }
}
