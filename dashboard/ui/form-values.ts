import { t } from '../texts/index.ts';

/** The values of a form, by the names of its fields. */
export class FilledFields {
  readonly #form: FormData;
  readonly #loaded: FormData;

  /** @param loaded the form as it was first shown; by default an empty one */
  constructor(form: FormData, loaded = new FormData()) {
    this.#form = form;
    this.#loaded = loaded;
  }

  /**
   * The members of a body that the user changed. All others are left out, because a form cannot show every stored
   * value, and another window may have changed a field that this window did not change.
   */
  changes<Body extends object>(bodyOf: (filled: FilledFields) => Body): Partial<Body> {
    const before = new Map(Object.entries(bodyOf(new FilledFields(this.#loaded))));
    const members = Object.entries(bodyOf(this));
    const changed = members.filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before.get(name)));
    return Object.fromEntries(changed) as Partial<Body>;
  }

  /**
   * Like `changes`, but merged into the currently stored value, which `stored` reads if anything changed. In a table,
   * only the entries that the user changed are written. In a list of words, only those that the user added or removed.
   */
  async changesOver<Body extends object>(
    bodyOf: (filled: FilledFields) => Body,
    stored: () => Promise<object | undefined>,
  ): Promise<Partial<Body>> {
    const changes = this.changes(bodyOf);
    if (!hasMembers(changes)) return changes;
    const before = new Map(Object.entries(bodyOf(new FilledFields(this.#loaded))));
    const now = new Map(Object.entries((await stored()) ?? {}));
    const members = Object.entries(changes).map(([name, value]) => [
      name,
      over(before.get(name), value, now.get(name)),
    ]);
    return Object.fromEntries(members) as Partial<Body>;
  }

  text(name: string): string {
    return String(this.#form.get(name) ?? '').trim();
  }

  /** The text of a field; null: the field is empty. */
  optional(name: string): string | null {
    return this.text(name) || null;
  }

  /** The number in a field; null: the field is empty. */
  number(name: string): number | null {
    return this.text(name) === '' ? null : Number(this.text(name));
  }

  checked(name: string): boolean {
    return this.#form.has(name);
  }

  /** The values of the checked boxes with this name. */
  choices<T extends string>(name: string, of: readonly T[]): T[] {
    const chosen = this.#form.getAll(name);
    return of.filter((one) => chosen.includes(one));
  }

  /**
   * The allowed words in a field, separated by commas or line ends. Null: the field is empty, and everything is
   * allowed. An empty list: the box “nothing” is checked.
   */
  allowed(name: string): string[] | null {
    return this.checked(`${name}_nothing`) ? [] : this.list(name);
  }

  /** The words in a field, separated by commas or line ends; null: the field is empty. */
  list(name: string): string[] | null {
    const words = this.text(name)
      .split(/[,\n]/)
      .map((word) => word.trim())
      .filter((word) => word !== '');
    return words.length === 0 ? null : words;
  }

  /**
   * Lines of the form `name = value`; the name may contain `=`, as an LDAP name does. Null: the field is empty. @throws
   * Error for a line of another form
   */
  pairs(name: string): [string, string][] | null {
    const lines = this.text(name)
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== '');
    if (lines.length === 0) return null;
    return lines.map((line) => {
      const spaced = line.lastIndexOf(' = ');
      const at = spaced === -1 ? line.lastIndexOf('=') : spaced + 1;
      const [key, value] = [line.slice(0, Math.max(0, at)).trim(), line.slice(at + 1).trim()];
      if (key === '' || value === '') throw new Error(t.form.noPair(line));
      return [key, value];
    });
  }
}

const isSame = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);
const isTable = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isWords = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((one) => typeof one === 'string');

/**
 * Returns `stored` with the change that the user made: `before` is what the form showed, `after` what the user entered.
 */
function over(before: unknown, after: unknown, stored: unknown): unknown {
  if (isSame(before, stored)) return after;
  if (isWords(before) && isWords(after) && isWords(stored)) {
    const added = after.filter((word) => !before.includes(word) && !stored.includes(word));
    return [...stored.filter((word) => after.includes(word) || !before.includes(word)), ...added];
  }
  if (!isTable(stored) || (!isTable(before) && !isTable(after))) return after;
  const [was, is] = [isTable(before) ? before : {}, isTable(after) ? after : {}];
  const entries = new Map(Object.entries(stored));
  for (const name of new Set([...Object.keys(was), ...Object.keys(is)])) {
    if (isSame(was[name], is[name])) continue;
    if (name in is) entries.set(name, over(was[name], is[name], stored[name]));
    else entries.delete(name);
  }
  // Keep the form's own value for an empty table: some forms use null.
  return entries.size === 0 && !isTable(after) ? after : Object.fromEntries(entries);
}

/** True if there is anything to write. */
export function hasMembers(body: object): boolean {
  return Object.keys(body).length > 0;
}
