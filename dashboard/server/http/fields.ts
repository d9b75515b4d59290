import { Refused } from "../problem";

/** Fields of a request, checked: each throws Refused, which names the field. */
export class Fields {
  readonly #values: Record<string, unknown>;

  constructor(values: Record<string, unknown>) {
    this.#values = values;
  }

  /** Not empty, at most `limit` characters. */
  text(name: string, limit = 2 ** 20): string {
    const value = this.optionalText(name, limit);
    if (value === "") throw bad(name, "is missing");
    return value;
  }

  /** Empty when it is not given. */
  optionalText(name: string, limit = 2 ** 20): string {
    const value = this.#values[name] ?? "";
    if (typeof value !== "string") throw bad(name, "is no text");
    if (value.length > limit) throw bad(name, `is longer than ${limit} characters`);
    return value;
  }

  number(name: string, low: number, high: number): number {
    const value = this.#values[name];
    if (typeof value !== "number" || !(value >= low && value <= high)) {
      throw bad(name, `is no number from ${low} to ${high}`);
    }
    return value;
  }

  whole(name: string, low: number, high: number): number {
    const value = this.number(name, low, high);
    if (!Number.isInteger(value)) throw bad(name, "is no whole number");
    return value;
  }

  /** Objects, 1 to `limit` of them, each checked as this one is. */
  list(name: string, limit: number): Fields[] {
    const value = this.#values[name];
    if (!Array.isArray(value) || value.length === 0 || value.length > limit) {
      throw bad(name, `is no list of 1 to ${limit}`);
    }
    return value.map((each: unknown) => {
      if (typeof each !== "object" || each === null) throw bad(name, "has what is no object");
      return new Fields(each as Record<string, unknown>);
    });
  }

  given(name: string): boolean {
    return this.#values[name] !== undefined && this.#values[name] !== null;
  }

  choice<const Choice extends string>(name: string, choices: readonly Choice[]): Choice {
    const value = choices.find((choice) => choice === this.#values[name]);
    if (value === undefined) throw bad(name, `is none of ${choices.join(", ")}`);
    return value;
  }
}

function bad(name: string, why: string): Refused {
  return new Refused(400, "BAD_REQUEST", `${name} ${why}.`);
}
