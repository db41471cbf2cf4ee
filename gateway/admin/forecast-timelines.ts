/**
 * Timelines of how deployments followed a forecast of their workload. `otela-plan watch --forecast` sends them, and the
 * dashboard shows them.
 */
import * as z from 'zod';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { KIND_NAME_MAX_CHARS, KINDS_MAX } from '../../shared/routing/kinds/request-kind.ts';
import { FACTORY_OBJECT_NAME } from '../factory/factory-object-name.ts';
import { type ModelTimeline, TIMELINE_SLOTS } from '../factory/forecast-timelines.ts';
import { boundedRecord } from '../http/common-schemas.ts';
import { type AdminCall, type AdminRoute, route } from './admin-route.ts';
import { listSchema } from './field-schemas.ts';

const text = z.string().max(2_000);
const counts = z.array(z.number().min(0)).max(KINDS_MAX);
const slotSchema = z.object({
  at: z.iso.datetime(),
  /** Requests by kind; null: not counted. */
  requests: z.array(z.number().min(0).nullable()).max(KINDS_MAX),
  /** Forecast for the next slot, by kind: the mean, and the interval that contains four of five values. */
  expected: z.object({ at: z.iso.datetime(), mean: counts, low: counts, high: counts }),
  /** Number of replicas by parallelism, such as `TP 2`. */
  replicas: boundedRecord(z.string().max(64), z.number().int().min(0), 32),
  decision: z.enum(['keep', 'wait', 'switch']),
  why: text,
  changes: z.array(text).max(64),
  /** Median latency in milliseconds; null: no response in the slot. */
  p50_ms: z.number().min(0).nullable(),
  /** 99th percentile of the latency in milliseconds; null: no response in the slot. */
  p99_ms: z.number().min(0).nullable(),
});
const timelineSchema = z.object({
  model: z.string().min(1).max(256),
  slot_ms: z.number().int().min(1_000).max(3_600_000),
  kinds: z.array(z.string().max(KIND_NAME_MAX_CHARS)).max(KINDS_MAX),
  slots: z.array(slotSchema).max(TIMELINE_SLOTS),
});
const putSchema = z.strictObject({ data: z.array(timelineSchema).max(32) });

export const timelineRoutes: readonly AdminRoute[] = [
  route({
    role: 'operator',
    method: 'get',
    path: '/timeline',
    summary:
      'List models that are deployed by a forecast, with demand by kind, forecast, replicas, changes and latency of the last slots.',
    answer: listSchema(timelineSchema),
    run: async ({ env }) => {
      const all = await asking(() => env.FACTORY.getByName(FACTORY_OBJECT_NAME).timelines());
      return { object: 'list', data: all.map(view), has_more: false };
    },
  }),
  route({
    role: 'operator',
    method: 'put',
    path: '/timeline',
    summary: 'Add slots, from otela-plan watch --forecast. A slot with the same time replaces the old slot.',
    body: putSchema,
    answer: z.object({ object: z.literal('timeline'), slots: z.number() }),
    run: put,
  }),
];

async function put({ env, body }: AdminCall<z.infer<typeof putSchema>>): Promise<object> {
  const timelines = body.data.map(
    ({ model, slot_ms, kinds, slots }): ModelTimeline => ({
      model,
      slotMs: slot_ms,
      kinds,
      slots: slots.map(({ at, expected, p50_ms, p99_ms, ...slot }) => ({
        ...slot,
        at: Date.parse(at),
        expected: { ...expected, at: Date.parse(expected.at) },
        p50Ms: p50_ms,
        p99Ms: p99_ms,
      })),
    }),
  );
  await asking(() => env.FACTORY.getByName(FACTORY_OBJECT_NAME).tellTimelines(timelines));
  return { object: 'timeline', slots: timelines.reduce((sum, { slots }) => sum + slots.length, 0) };
}

/** @throws ApiError 503 */
async function asking<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (cause) {
    throw new ApiError('server_is_overloaded', 'Timelines cannot be read or written. Try again shortly.', { cause });
  }
}

const timeOf = (at: number): string => new Date(at).toISOString();

function view({ model, slotMs, kinds, slots }: ModelTimeline): z.infer<typeof timelineSchema> {
  return {
    model,
    slot_ms: slotMs,
    kinds,
    slots: slots.map(({ at, expected, p50Ms, p99Ms, ...slot }) => ({
      ...slot,
      at: timeOf(at),
      expected: { ...expected, at: timeOf(expected.at) },
      p50_ms: p50Ms,
      p99_ms: p99Ms,
    })),
  };
}
