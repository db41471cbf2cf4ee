/**
 * Schemas of the messages between the gateways of one institution: JSON, validated on both sides. Unknown members are
 * ignored.
 */
import * as z from 'zod';
import { FOLLOWER_SILENT_MS, SILENCE_MAX_MS } from './silence-timeouts.ts';

const url = z.url({ protocol: /^https?$/ }).max(2048);
const cell = z.union([z.string(), z.number(), z.null()]);
/** Maximum characters of a meter's id: a key or a user, with a model's name of 256 characters. */
const METER_ID_MAX = 512;

/** POST /gateway/follow, once a second: a follower asks for changes. */
export const followSchema = z.object({
  /** URL of this follower. */
  url,
  version: z.string().max(64),
  /** Position of the follower's copy: the feed, and the last copied number. Null: the follower has no copy. */
  cursor: z.object({ feed: z.string().max(64), seq: z.number().int().min(0) }).nullable(),
  /** Number of records that wait at the follower. */
  waiting: z.number().int().min(0),
  /**
   * After this many milliseconds without contact, the follower may use its share of limits. Earlier versions do not
   * send it.
   */
  silence_ms: z.number().int().min(FOLLOWER_SILENT_MS).max(SILENCE_MAX_MS).default(FOLLOWER_SILENT_MS),
});

export const followAnswerSchema = z.object({
  feed: z.string().max(64),
  /** Epoch of the statement about the primary; 0: there is no statement. */
  epoch: z.number().int().min(0),
  statement: z.string().max(8192).optional(),
  /** True if the cursor belonged to another feed, so that a complete copy begins with these rows. */
  anew: z.boolean(),
  rows: z
    .array(
      z.object({ table: z.string().max(64), key: z.string().max(512), row: z.record(z.string(), cell).nullable() }),
    )
    .max(1_000),
  seq: z.number().int().min(0),
  more: z.boolean(),
  /** Number of the last change of monthly counts; absent: the primary's version has none. */
  budgets: z.number().int().min(0).optional(),
  /** All followers, including the one that asks. */
  followers: z.array(z.object({ key: z.string().max(64), url })).max(64),
});
export type FollowAnswer = z.infer<typeof followAnswerSchema>;

/** POST /gateway/limits: a follower calls a limits object of the primary. */
export const limitCallSchema = z.object({
  subject: z.string().min(1).max(256),
  method: z.enum(['reserve', 'release', 'correct', 'uses', 'used']),
  /** Name of a call that is repeated if its answer was lost. The call counts once. */
  once: z.string().max(64).optional(),
  args: z.array(z.unknown()).max(4),
});
export type LimitCall = z.infer<typeof limitCallSchema>;
export const limitAnswerSchema = z.object({ result: z.unknown() });

const subjectSchema = z.string().min(1).max(256);
const countedSchema = z.object({ origin: z.string().min(1).max(64), id: z.string().max(METER_ID_MAX) });
/** Position of a count within a subject. */
const countPlaceSchema = countedSchema.extend({ subject: subjectSchema });

/**
 * POST /gateway/budgets: a follower asks for monthly counts that changed after `seq`. `after`: the last received count
 * of a subject that did not fit into one answer.
 */
export const budgetsSchema = z.object({ seq: z.number().int().min(0), after: countPlaceSchema.optional() });
export const subjectCountsSchema = z.object({
  subject: subjectSchema,
  month: z.string().regex(/^\d{4}-\d{2}$/),
  counts: z.array(countedSchema.extend({ tokens: z.number().int().min(0) })).max(100_000),
});
export const budgetsPageSchema = z.object({
  items: z.array(subjectCountsSchema).max(1_000),
  seq: z.number().int().min(0),
  more: z.boolean(),
  after: countPlaceSchema.optional(),
});

/** POST /gateway/records: a follower sends usage that it recorded. */
export const recordsSchema = z.object({
  /**
   * Identifies the follower's monthly counts. Unlike the follower's key it never changes. If it is absent, the name of
   * the key is used.
   */
  origin: z.string().min(1).max(64).optional(),
  items: z
    .array(
      z.object({
        position: z.number().int().min(1),
        kind: z.enum(['usage', 'settle', 'months']),
        name: z.string().min(1).max(256),
        body: z.string().max(8 * 1024 * 1024),
      }),
    )
    .max(1_000),
});
export const recordsAnswerSchema = z.object({ position: z.number().int().min(0) });

/** POST /gateway/epoch: a promoted gateway informs a former primary. */
export const epochSchema = z.object({ statement: z.string().max(8192) });
export const epochAnswerSchema = z.object({
  epoch: z.number().int().min(0),
  /** The root's statement for the answer's epoch. */
  statement: z.string().max(8192).optional(),
});
