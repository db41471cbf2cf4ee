/**
 * Statistics of the workload, for the planner: rates and lengths by model, or counts by kind of request and time slot.
 */
import { isNotNull } from 'drizzle-orm';
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import type { RequestKind } from '../../../shared/routing/kinds/request-kind.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import { MODEL_SETTINGS_MAX } from '../../accounts/gateway-settings.ts';
import { modelWeights } from '../../accounts/model-tables.ts';
import { kindSchema } from '../../settings/routing-settings.ts';
import { Histogram } from '../../usage/hour/histogram.ts';
import type { ModelWorkload } from '../../usage/hour/hour-records-reader.ts';
import { RequestKindCounts } from '../../usage/hour/request-kind-counts.ts';
import { shardsBetween } from '../../usage/usage-row.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
/** A window from 1 s to 7 days: at most 604800s, 10080m, 168h or 7d. */
const WINDOW =
  /^(([1-9][0-9]{0,4}|[1-5][0-9]{5}|60[0-3][0-9]{3}|604[0-7][0-9]{2}|604800)s|([1-9][0-9]{0,3}|100[0-7][0-9]|10080)m|([1-9][0-9]?|1[0-5][0-9]|16[0-8])h|[1-7]d)$/;
const SLOT = /^([1-9][0-9]{0,2}|[1-2][0-9]{3}|3[0-5][0-9]{2}|3600)s$/;
const UNIT_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: HOUR_MS, d: DAY_MS };
/** Maximum slots of a response: two days of minutes. */
const SLOTS_MAX = 2_880;
/** Records are read in pieces of this length, because new records wait while a piece is read. */
const PIECE_MS = 600_000;

const query = z.strictObject({
  window: z.string().regex(WINDOW, 'must be a number of s, m, h or d, from 1s to 7d').default('1h'),
  by: z.enum(['model', 'kind']).default('model'),
  /** With `by=kind`: the length of a slot. */
  slot: z.string().regex(SLOT, 'must be a number of seconds, from 1s to 3600s').default('60s'),
});
const lengths = z.object({ mean: z.number(), deviation: z.number(), p50: z.number(), p95: z.number() });
const byModel = z.object({
  model: z.string(),
  requests: z.number(),
  requests_per_second: z.number(),
  /**
   * Requests that were refused because no node accepted them. They are demand that the current deployment does not
   * serve.
   */
  unserved: z.number(),
  input: lengths,
  output: lengths,
});
const byKind = z.object({
  model: z.string(),
  /** Kinds from the model's routing settings; empty: all requests count as one kind. */
  kinds: z.array(kindSchema),
  /** Finished requests by the time of their arrival. Slots without requests are omitted. */
  slots: z.array(
    z.object({
      at: z.iso.datetime(),
      /** Number of requests by kind, according to the actual lengths of prompt and response. */
      requests: z.array(z.number()),
      unserved: z.number(),
      p50_ms: z.number(),
      p99_ms: z.number(),
    }),
  ),
  /** Latency by kind of request. */
  latency_ms: z.array(lengths),
  /** Requests whose kind was predicted wrong when they arrived. */
  misjudged: z.object({
    requests: z.number(),
    wrong: z.number(),
    /** `confusion[actual][predicted]`: number of requests, by index of their kinds. */
    confusion: z.array(z.array(z.number())),
  }),
  /**
   * Number of requests by length of prompt and response. Lengths are rounded to a logarithmic grid with four cells per
   * factor of e. Operators can derive kinds of requests from it.
   */
  lengths: z.array(z.object({ input: z.number(), output: z.number(), requests: z.number() })),
});
const answer = z.object({
  object: z.literal('list'),
  window_ms: z.number(),
  /** Length of a slot; only with `by=kind`. */
  slot_ms: z.number().optional(),
  data: z.array(z.union([byModel, byKind])),
});

export const workloadRoutes: readonly AdminRoute[] = [
  route({
    role: 'operator',
    method: 'get',
    path: '/workload',
    summary:
      'Return request rates and lengths by model, or counts by kind and time slot, for the last minutes to days.',
    query,
    answer,
    run: readWorkload,
  }),
];

type Query = z.infer<typeof query>;

const millisecondsOf = (text: string): number => Number(text.slice(0, -1)) * (UNIT_MS[text.slice(-1)] ?? 0);

async function readWorkload(call: AdminCall<unknown, Query>): Promise<object> {
  const { env, now } = call;
  const windowMs = millisecondsOf(call.query.window);
  if (call.query.by === 'kind') return readKinds(call, windowMs);
  const from = now - windowMs;
  const parts = await queryOrUnavailable(
    Promise.all(shardsBetween(from, now).map((shard) => env.USAGE.getByName(shard).workload(from, now))),
  );
  return { object: 'list', window_ms: windowMs, data: together(parts, windowMs) };
}

function together(parts: readonly (readonly ModelWorkload[])[], windowMs: number): object[] {
  const models = new Map<string, { requests: number; unserved: number; input: Histogram; output: Histogram }>();
  for (const { model, requests, unserved, input, output } of parts.flat()) {
    const known = models.get(model) ?? { requests: 0, unserved: 0, input: new Histogram(), output: new Histogram() };
    models.set(model, known);
    known.requests += requests;
    known.unserved += unserved;
    known.input.merge(input);
    known.output.merge(output);
  }
  return [...models]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([model, { requests, unserved, input, output }]) => ({
      model,
      requests,
      requests_per_second: requests / (windowMs / 1000),
      unserved,
      input: lengthsOf(input),
      output: lengthsOf(output),
    }));
}

function lengthsOf(histogram: Histogram): z.infer<typeof lengths> {
  const { mean, deviation } = histogram;
  return { mean, deviation, p50: histogram.percentile(0.5), p95: histogram.percentile(0.95) };
}

async function readKinds({ env, query: { slot }, now }: AdminCall<unknown, Query>, windowMs: number): Promise<object> {
  const slotMs = millisecondsOf(slot);
  if (windowMs / slotMs > SLOTS_MAX)
    throw new ApiError(
      'unprocessable_content',
      `window: has more than ${SLOTS_MAX} slots of ${slot}: choose longer slots or a shorter window.`,
      {
        param: 'window',
      },
    );
  const rows = await queryOrUnavailable(
    database(env)
      .select({ model: modelWeights.model, kinds: modelWeights.kinds })
      .from(modelWeights)
      .where(isNotNull(modelWeights.kinds))
      .limit(MODEL_SETTINGS_MAX),
  );
  const kinds: Record<string, RequestKind[]> = Object.fromEntries(rows.map((row) => [row.model, row.kinds ?? []]));
  const models = new Map<string, RequestKindCounts>();
  for (const [shard, from, to] of piecesOf(now - windowMs, now)) {
    for (const part of await queryOrUnavailable(env.USAGE.getByName(shard).kindWorkload(from, to, { slotMs, kinds }))) {
      const own = Object.hasOwn(kinds, part.model) ? (kinds[part.model] ?? []) : [];
      const known = models.get(part.model) ?? new RequestKindCounts(own, slotMs);
      models.set(part.model, known);
      known.merge(part);
    }
  }
  const first = Math.ceil((now - windowMs) / slotMs);
  const data = [...models]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([model, counts]) => view(model, counts, first, slotMs));
  return { object: 'list', window_ms: windowMs, slot_ms: slotMs, data };
}

/** Splits a time span into pieces, each within the object of one hour; oldest first. */
function* piecesOf(from: number, to: number): Iterable<[shard: string, from: number, to: number]> {
  for (const shard of shardsBetween(from, to)) {
    const begin = Date.parse(`${shard}:00:00Z`);
    const end = Math.min(to, begin + HOUR_MS);
    for (let at = Math.max(from, begin); at < end; at += PIECE_MS) yield [shard, at, Math.min(end, at + PIECE_MS)];
  }
}

/** Builds the response for one model. Omits slots before `first`: the window contains only a part of their time. */
function view(model: string, counts: RequestKindCounts, first: number, slotMs: number): z.infer<typeof byKind> {
  const { kinds, slots, latency, confusion } = counts;
  const judged = confusion.flat().reduce((sum, n) => sum + n, 0);
  const right = confusion.reduce((sum, row, k) => sum + (row[k] ?? 0), 0);
  return {
    model,
    kinds: [...kinds],
    slots: [...slots]
      .filter(([number]) => number >= first)
      .sort(([a], [b]) => a - b)
      .map(([number, { requests, unserved, latency: times }]) => ({
        at: new Date(number * slotMs).toISOString(),
        requests,
        unserved,
        p50_ms: times.percentile(0.5),
        p99_ms: times.percentile(0.99),
      })),
    latency_ms: latency.map(lengthsOf),
    misjudged: { requests: judged, wrong: judged - right, confusion },
    lengths: counts.lengths(),
  };
}
