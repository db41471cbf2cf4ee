/**
 * The record of one request in a statement between two institutions, and its only encoding: a line of JSON with the
 * members in the order below, without blanks. Both institutions write the same members, so that their records can be
 * compared.
 */
import * as z from 'zod';
import { sessionSchema } from '../lattice/node-record.ts';
import { tryParseJson } from '../text/parse-json.ts';
import { GPU_MS_MAX, TOKENS_MAX } from './ingress-usage.ts';
import { PEER_PROJECT_PATTERN } from './readable-receipt.ts';

/** Maximum length of a line. A model's name of 1,024 characters may need six times as many. */
export const RECORD_MAX_CHARS = 8_192;

const tokens = z.number().int().min(0).max(TOKENS_MAX);

const recordSchema = z.strictObject({
  /** When the attempt ended, by the clock of the institution that wrote the record. */
  at: z.iso.datetime({ precision: 3 }),
  /** Id of the request and number of its attempt, which the institution of the users chose. */
  request: z.string().min(1).max(128),
  attempt: z.number().int().min(0).max(Number.MAX_SAFE_INTEGER),
  /** The node that served the request, and its provider at the institution of the nodes. */
  session: sessionSchema,
  provider: z.string().max(63),
  model: z.string().max(1_024),
  /** Id of the project at the institution of the users; null: none. */
  project: z.string().regex(PEER_PROJECT_PATTERN).nullable(),
  prompt: tokens,
  completion: tokens,
  cached: tokens,
  reasoning: tokens,
  /** GPU time in milliseconds of one GPU; null: unknown. */
  gpu_ms: z.number().int().min(0).max(GPU_MS_MAX).nullable(),
  /** True if the institution that wrote the record got no counts from the engine. */
  estimated: z.boolean(),
});

export type StatementRecord = z.infer<typeof recordSchema>;

const MEMBERS = Object.keys(recordSchema.shape);

/** Writes a record without a line feed. */
export function recordLine(record: StatementRecord): string {
  return JSON.stringify(record, MEMBERS);
}

/**
 * Reads a line. Undefined if it is not a record in its only encoding: with other blanks, a repeated member or another
 * order of members, one record would have several hashes.
 */
export function readRecordLine(line: string): StatementRecord | undefined {
  if (line.length > RECORD_MAX_CHARS) return undefined;
  const record = recordSchema.safeParse(tryParseJson(line)).data;
  return record !== undefined && recordLine(record) === line ? record : undefined;
}
