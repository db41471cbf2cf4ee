/** Describes the changes of an audit log entry. */
import { t } from '../../texts/index.ts';

export interface Change {
  field: string;
  /** The field's value before the change; undefined: the object was created with the value `after`. */
  before: string | undefined;
  after: string;
}

const VALUE_MAX_CHARS = 120;

/** Fields that are not shown as changes, because the entry already has the object's name and the time. */
const IDS: ReadonlySet<string> = new Set(['object', 'id', 'updated_at', 'created_at']);

type Fields = Readonly<Record<string, unknown>>;

const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Compares the recorded object before and after the change; null: it did not exist. */
export function changesOf(before: unknown, after: unknown): Change[] {
  if (!isFields(after)) return [];
  const old = isFields(before) ? before : undefined;
  return Object.entries(after).flatMap(([field, value]): Change[] => {
    if (IDS.has(field)) return [];
    const now = shown(value);
    if (old === undefined)
      return now === t.common.none || value === false ? [] : [{ field, before: undefined, after: now }];
    const was = shown(old[field]);
    return was === now ? [] : [{ field, before: was, after: now }];
  });
}

/** A value in one line of at most `VALUE_MAX_CHARS` characters. */
function shown(value: unknown): string {
  const text = words(value);
  return text.length > VALUE_MAX_CHARS ? `${text.slice(0, VALUE_MAX_CHARS - 1)}…` : text;
}

function words(value: unknown): string {
  if (value === null || value === undefined || value === '') return t.common.none;
  if (typeof value === 'boolean') return value ? t.common.yes : t.common.no;
  if (Array.isArray(value)) return value.length === 0 ? t.common.none : value.map(words).join(', ');
  if (!isFields(value)) return String(value);
  const members = Object.entries(value).map(([name, one]) => `${name} ${words(one)}`);
  return members.length === 0 ? t.common.none : members.join(', ');
}
