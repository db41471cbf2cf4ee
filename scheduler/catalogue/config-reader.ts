import { SchedulerError } from '../errors.ts';

/** Upper bound of every count in a `config.json`. Contexts reach 10 M tokens. */
const COUNT_MAX = 100_000_000;
/** Upper bound of lists in a `config.json`, which have an entry per layer. */
const LIST_MAX = 4096;

/**
 * Reads the fields of a parsed `config.json` and checks each field when it is read. If a method gets several names, it
 * reads the first field that is present.
 */
export class ConfigReader {
  readonly id: string;
  readonly #fields: Readonly<Record<string, unknown>>;

  constructor(value: unknown, id: string) {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw new SchedulerError('bad_input', `${id}: not a model configuration: it must be a JSON object`);
    this.id = id;
    this.#fields = Object.fromEntries(Object.entries(value));
  }

  has(name: string): boolean {
    return this.#fields[name] !== undefined && this.#fields[name] !== null;
  }

  names(): string[] {
    return Object.keys(this.#fields);
  }

  /** Returns a reader of a nested object. */
  nested(name: string): ConfigReader | undefined {
    return this.has(name) && typeof this.#fields[name] === 'object'
      ? new ConfigReader(this.#fields[name], this.id)
      : undefined;
  }

  text(name: string): string | undefined {
    const value = this.#fields[name];
    return typeof value === 'string' ? value.slice(0, 256) : undefined;
  }

  flag(name: string): boolean | undefined {
    const value = this.#fields[name];
    return typeof value === 'boolean' ? value : undefined;
  }

  /** Returns a whole number from 0; undefined if no name is present. */
  count(...names: readonly string[]): number | undefined {
    const name = names.find((one) => this.has(one));
    if (name === undefined) return undefined;
    const value = this.#fields[name];
    if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > COUNT_MAX)
      throw this.#wrong(
        name,
        `must be a whole number from 0 to ${COUNT_MAX}, not ${JSON.stringify(value)?.slice(0, 40)}`,
      );
    return value;
  }

  /** Like `count`, but requires a number above 0. */
  need(...names: readonly string[]): number {
    const value = this.count(...names);
    if (value === undefined) throw new SchedulerError('bad_input', `${this.id}: config.json lacks ${names[0]}`);
    if (value === 0) throw this.#wrong(names.find((one) => this.has(one)) ?? '', 'must be above 0');
    return value;
  }

  factor(name: string): number | undefined {
    const value = this.#fields[name];
    return typeof value === 'number' && Number.isFinite(value) && value > 0 ? value : undefined;
  }

  list(name: string): unknown[] | undefined {
    const value = this.#fields[name];
    if (!Array.isArray(value)) return undefined;
    if (value.length > LIST_MAX) throw this.#wrong(name, `has ${value.length} entries; at most ${LIST_MAX}`);
    return value;
  }

  words(name: string): string[] | undefined {
    return this.list(name)?.filter((one) => typeof one === 'string');
  }

  numbers(name: string): number[] | undefined {
    return this.list(name)?.filter((one) => typeof one === 'number');
  }

  #wrong(name: string, what: string): SchedulerError {
    return new SchedulerError('bad_input', `${this.id}: not a model configuration: ${name} ${what}`);
  }
}
