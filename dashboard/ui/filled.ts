import { t } from '../texts/index.ts';

/** What was typed into a form, by the names of its fields. */
export class Filled {
  readonly #form: FormData;
  readonly #loaded: FormData;

  /** @param loaded the form as it was shown; by default an empty one */
  constructor(form: FormData, loaded = new FormData()) {
    this.#form = form;
    this.#loaded = loaded;
  }

  /**
   * The members of a body whose fields the person changed. The others are left out: a form cannot show every stored value, and another
   * window may have changed what this one has not.
   */
  changes<Body extends object>(bodyOf: (filled: Filled) => Body): Partial<Body> {
    const before = new Map(Object.entries(bodyOf(new Filled(this.#loaded))));
    const members = Object.entries(bodyOf(this));
    const changed = members.filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before.get(name)));
    return Object.fromEntries(changed) as Partial<Body>;
  }

  text(name: string): string {
    return String(this.#form.get(name) ?? '').trim();
  }

  /** Null: the field is empty. */
  optional(name: string): string | null {
    return this.text(name) || null;
  }

  /** Null: the field is empty. */
  number(name: string): number | null {
    return this.text(name) === '' ? null : Number(this.text(name));
  }

  checked(name: string): boolean {
    return this.#form.has(name);
  }

  /** The checked boxes of one name. */
  choices<T extends string>(name: string, of: readonly T[]): T[] {
    const chosen = this.#form.getAll(name);
    return of.filter((one) => chosen.includes(one));
  }

  /** Words between commas or line ends; null: the field is empty, and so everything is allowed. Empty: its box for nothing is checked. */
  allowed(name: string): string[] | null {
    return this.checked(`${name}_nothing`) ? [] : this.list(name);
  }

  /** Words between commas or line ends; null: the field is empty. */
  list(name: string): string[] | null {
    const words = this.text(name)
      .split(/[,\n]/)
      .map((word) => word.trim())
      .filter((word) => word !== '');
    return words.length === 0 ? null : words;
  }

  /** Lines of the form `name = value`; null: the field is empty. @throws Error for a line of another form */
  pairs(name: string): [string, string][] | null {
    const lines = this.text(name)
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== '');
    if (lines.length === 0) return null;
    return lines.map((line) => {
      const at = line.indexOf('=');
      const [key, value] = [line.slice(0, Math.max(0, at)).trim(), line.slice(at + 1).trim()];
      if (key === '' || value === '') throw new Error(t.form.noPair(line));
      return [key, value];
    });
  }
}

/** Whether there is anything to write. */
export function hasMembers(body: object): boolean {
  return Object.keys(body).length > 0;
}
