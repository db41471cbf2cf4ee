import * as z from 'zod';
import { KIND_NAME_MAX_CHARS, KINDS_MAX, type RequestKind } from '../../shared/routing/kinds/request-kind.ts';
import { parseGatewayAnswer } from './live-nodes.ts';
import type { PlannerGateway } from './planner-gateway.ts';

const count = z.number().nonnegative();
/** The fields of `/admin/workload?by=kind` that following needs. */
const answerSchema = z.object({
  slot_ms: z.number().positive(),
  data: z
    .array(
      z.object({
        model: z.string().max(1024),
        kinds: z
          .array(
            z.object({
              name: z.string().max(KIND_NAME_MAX_CHARS),
              input: z.number().positive(),
              output: z.number().positive(),
              share: z.number(),
            }),
          )
          .max(KINDS_MAX),
        slots: z
          .array(
            z.object({
              at: z.iso.datetime(),
              requests: z.array(count).max(KINDS_MAX),
              unserved: count,
              p50_ms: count,
              p99_ms: count,
            }),
          )
          .max(10_000),
        latency_ms: z.array(z.object({ mean: count, p95: count })).max(KINDS_MAX),
        misjudged: z.object({
          requests: count,
          wrong: count,
          confusion: z.array(z.array(count).max(KINDS_MAX)).max(KINDS_MAX).default([]),
        }),
        lengths: z.array(z.object({ input: count, output: count, requests: count })).max(10_000),
      }),
    )
    .max(10_000),
});

interface KindSlot {
  /** Requests by kind. */
  requests: number[];
  /** Requests that were refused because no node served the model; their kind is unknown. */
  unserved: number;
  p50Ms: number;
  p99Ms: number;
}

/** One model's requests by kind. */
export interface KindCount {
  kinds: RequestKind[];
  /** Counts by the number of slots since the epoch. A slot of the window without an entry had no request. */
  slots: Map<number, KindSlot>;
  /** Time in which 95 of 100 responses of the slowest kind end, milliseconds. */
  settleMs: number;
  /** `confusion[kind][judged]`: requests by kind, and by the kind that the gateway judged at their arrival. */
  misjudged: { requests: number; wrong: number; confusion: number[][] };
  lengths: { input: number; output: number; requests: number }[];
}

/**
 * `windowS` and `slotS`: whole seconds. Returns counts by the gateway's name of the model.
 *
 * @throws SchedulerError `gateway`
 */
export async function kindCounts(
  gateway: PlannerGateway,
  windowS: number,
  slotS: number,
): Promise<Map<string, KindCount>> {
  const path = `/admin/workload?by=kind&window=${windowS}s&slot=${slotS}s`;
  const { data, slot_ms } = parseGatewayAnswer(answerSchema, await gateway.get(path), path);
  return new Map(
    data.map(({ model, kinds, slots, latency_ms, misjudged, lengths }) => [
      model,
      {
        kinds,
        misjudged,
        lengths,
        settleMs: Math.max(0, ...latency_ms.map(({ p95 }) => p95)),
        slots: new Map(
          slots.map(({ at, requests, unserved, p50_ms: p50Ms, p99_ms: p99Ms }) => [
            Math.round(Date.parse(at) / slot_ms),
            { requests, unserved, p50Ms, p99Ms },
          ]),
        ),
      },
    ]),
  );
}
