import { signal, type ReadonlySignal, type Signal } from "@preact/signals";

/**
 * Rows by key, each in a signal of its own: who reads one row is rendered anew
 * when that row changed, and who reads `keys` when rows came or went.
 */
export class Table<Row> {
  readonly #rows = new Map<string, Signal<Row | undefined>>();
  readonly #keys = signal<readonly string[]>([]);
  readonly #all = signal<readonly Row[]>([]);
  /** What has changed since `publish`. */
  #touched = false;
  #order: (one: Row, other: Row) => number;

  constructor(order: (one: Row, other: Row) => number) {
    this.#order = order;
  }

  /** Keys of the rows, in the table's order; a new array only when they changed. */
  get keys(): ReadonlySignal<readonly string[]> {
    return this.#keys;
  }

  /** The rows in the table's order; rows that did not change are the same objects. */
  get all(): ReadonlySignal<readonly Row[]> {
    return this.#all;
  }

  /** The row's signal, undefined while there is no such row. */
  row(key: string): ReadonlySignal<Row | undefined> {
    return this.#cell(key);
  }

  peek(key: string): Row | undefined {
    return this.#rows.get(key)?.peek();
  }

  set(key: string, row: Row): void {
    this.#cell(key).value = row;
    this.#touched = true;
  }

  remove(key: string): void {
    const cell = this.#rows.get(key);
    if (cell?.peek() === undefined) return;
    cell.value = undefined;
    this.#touched = true;
  }

  /** Exactly these rows; a row that is the same object changes nothing. */
  replace(rows: ReadonlyMap<string, Row>): void {
    for (const key of this.#rows.keys()) if (!rows.has(key)) this.remove(key);
    for (const [key, row] of rows) this.set(key, row);
    this.#touched = true;
  }

  /** Brings `keys` and `all` up to date, once for any number of changes. */
  publish(): void {
    if (!this.#touched) return;
    this.#touched = false;
    const present: [string, Row][] = [];
    // From the order of last time, which is nearly always that of now.
    for (const key of new Set([...this.#keys.peek(), ...this.#rows.keys()])) {
      const row = this.#rows.get(key)?.peek();
      if (row !== undefined) present.push([key, row]);
    }
    present.sort(([, one], [, other]) => this.#order(one, other));
    this.#all.value = present.map(([, row]) => row);
    const keys = present.map(([key]) => key);
    const before = this.#keys.peek();
    if (keys.length !== before.length || keys.some((key, index) => key !== before[index])) {
      this.#keys.value = keys;
    }
  }

  #cell(key: string): Signal<Row | undefined> {
    let cell = this.#rows.get(key);
    if (cell === undefined) {
      cell = signal<Row | undefined>(undefined);
      this.#rows.set(key, cell);
    }
    return cell;
  }
}
