/**
 * What `watch --forecast` counted, expected and planned in each slot: one line of JSON per slot and model. People,
 * programs and the next run of the command read it.
 */
import { appendFileSync, readFileSync, renameSync, statSync } from 'node:fs';
import * as z from 'zod';
import { KINDS_MAX } from '../../shared/routing/kinds/request-kind.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { SchedulerError } from '../errors.ts';

/** A larger file is renamed to FILE.1, which replaces the previous FILE.1. */
const FILE_MAX_BYTES = 64 * 1024 * 1024;

export interface SlotRecord {
  /** Start of the last counted slot, RFC 3339. */
  at: string;
  /** Duration of a slot, seconds. */
  slot_s: number;
  model: string;
  kinds: readonly string[];
  /** Requests by kind in that slot; NaN: the slot was not observed. */
  requests: readonly number[];
  /** Forecast of requests in the slots from `from` on, as `[kind][step]`. */
  expected: { from: string; mean: number[][]; low: number[][]; high: number[][] };
  methods: { kind: string; method: string; why: string }[];
  notes: string[];
  /** Planned replicas by parallelism, such as `TP 2`. */
  replicas: Record<string, number>;
  decision: 'keep' | 'wait' | 'switch';
  why: string;
  /** Changes that the plan makes, as text. */
  changes: string[];
  /** Response time in milliseconds; null: no request was answered. */
  p50_ms: number | null;
  p99_ms: number | null;
  /**
   * Share of requests for which the gateway estimated a wrong kind on arrival; null: it estimated none.
   */
  misjudged: number | null;
}

const countedSchema = z.object({
  at: z.iso.datetime(),
  slot_s: z.number().positive(),
  model: z.string(),
  kinds: z.array(z.string()).max(KINDS_MAX),
  requests: z.array(z.number().nonnegative()).max(KINDS_MAX),
});
export type CountedLine = z.infer<typeof countedSchema>;

/**
 * @throws SchedulerError `bad_input` if the file cannot be written, because missing records would mislead the next run
 */
export function appendRecords(path: string, records: readonly SlotRecord[]): void {
  try {
    const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
    if (size > FILE_MAX_BYTES) renameSync(path, `${path}.1`);
    appendFileSync(path, records.map((one) => `${JSON.stringify(one)}\n`).join(''), { mode: 0o600 });
  } catch (cause) {
    throw new SchedulerError('gateway', `cannot write ${path}: ${errorText(cause)}`, { cause });
  }
}

/** Converts records to the body of `PUT /admin/timeline`, which the gateway's dashboard shows. */
export function timelineOf(records: readonly SlotRecord[]): object {
  const next = (rows: readonly (readonly number[])[]) => rows.map((steps) => steps[0] ?? 0);
  return {
    data: records.map(
      ({ model, slot_s, kinds, at, requests, expected, replicas, decision, why, changes, p50_ms, p99_ms }) => ({
        model,
        slot_ms: slot_s * 1e3,
        kinds,
        slots: [
          {
            at,
            // A slot that was not observed is null, which differs from zero requests.
            requests: requests.map((one) => (Number.isFinite(one) ? one : null)),
            expected: {
              at: expected.from,
              mean: next(expected.mean),
              low: next(expected.low),
              high: next(expected.high),
            },
            replicas,
            decision,
            why: why.slice(0, TEXT_MAX_CHARS),
            changes: changes.slice(0, CHANGES_MAX).map((line) => line.slice(0, TEXT_MAX_CHARS)),
            p50_ms,
            p99_ms,
          },
        ],
      }),
    ),
  };
}

/** Maximum lengths that the gateway accepts. */
const TEXT_MAX_CHARS = 2_000;
const CHANGES_MAX = 64;

/** Reads all valid lines. A last line that a crash cut off is skipped. A missing file counts as empty. */
export function readRecords(path: string, log: (line: string) => void): CountedLine[] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return [];
    throw new SchedulerError('bad_input', `cannot read ${path}: ${errorText(cause)}`, { cause });
  }
  const lines = text.split('\n').filter((line) => line !== '');
  const found = lines.flatMap((line) => parsed(line) ?? []);
  if (found.length < lines.length)
    log(`${path}: ${lines.length - found.length} lines are not slots of a history and are skipped`);
  return found;
}

function parsed(line: string): CountedLine | undefined {
  try {
    const one = countedSchema.safeParse(JSON.parse(line)).data;
    return one?.kinds.length === one?.requests.length ? one : undefined;
  } catch {
    return undefined;
  }
}
