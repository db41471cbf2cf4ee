/** The columns of a usage record in PostgreSQL. Pure. */
import { type UsageRow, usageShardOf } from '../../../../usage/usage-row.ts';

/** Streams from this number on are lines of batches: see gateway/batch/line-usage.ts. */
const LINE_STREAMS = 2 ** 52;
const FAILED_STATUS = 400;

/** Columns in the order of `recordValues`, with their types as lists. */
export const RECORD_COLUMNS = {
  name: 'text',
  hour: 'text',
  at: 'bigint',
  estimated: 'boolean',
  traced: 'boolean',
  session: 'text',
  request: 'text',
  user: 'text',
  key: 'text',
  model: 'text',
  prompt: 'bigint',
  completion: 'bigint',
  times: 'bigint',
  failed: 'boolean',
  error: 'text',
  kind: 'text',
  total_ms: 'bigint',
  row: 'text',
} as const;

type Value = string | number | boolean | null;

/**
 * Names an attempt that a gateway opened by its request and number, whichever process reports it. Other records have
 * requests that agents or clients name, so they are named by their session and stream.
 */
export function recordName(row: Pick<UsageRow, 'session' | 'stream' | 'request' | 'attempt'>): string {
  const { session, stream, request, attempt } = row;
  const isAttempt = session !== '' && stream > 0 && stream < LINE_STREAMS;
  return isAttempt ? `${request}/${attempt}` : `${session} ${stream}`;
}

export function recordValues(row: UsageRow): Value[] {
  const { at, estimated, traced, session, request, user, key, model, prompt, completion, times = 1 } = row;
  const { status, error = null, kind = null, totalMs } = row;
  return [
    recordName(row),
    usageShardOf(at),
    wholeNumber(at),
    estimated,
    traced,
    session,
    request,
    user,
    key,
    model,
    wholeNumber(prompt),
    wholeNumber(completion),
    wholeNumber(times),
    (status ?? 0) >= FAILED_STATUS,
    error,
    kind,
    totalMs === null ? null : wholeNumber(totalMs),
    JSON.stringify(row),
  ];
}

/** A number that `bigint` stores: a fraction would be refused with all records of its transaction. */
export function wholeNumber(value: number): number {
  if (!Number.isFinite(value)) return 0;
  return Math.max(-Number.MAX_SAFE_INTEGER, Math.min(Number.MAX_SAFE_INTEGER, Math.round(value)));
}

/** Returns the row without U+0000, which a client may send in a name and PostgreSQL does not store. */
export function storableRow(row: UsageRow): UsageRow {
  const texts = Object.entries(row).filter(([, value]) => typeof value === 'string' && value.includes('\0'));
  const replaced = texts.map(([name, value]) => [name, String(value).replaceAll('\0', '\uFFFD')]);
  return texts.length === 0 ? row : { ...row, ...Object.fromEntries(replaced) };
}
