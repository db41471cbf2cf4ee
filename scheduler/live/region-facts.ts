/** A gateway's data about its regions: `GET /admin/regions`. */
import * as z from 'zod';
import { parseGatewayAnswer } from './live-nodes.ts';
import type { PlannerGateway } from './planner-gateway.ts';

const count = z.number().int().nonnegative();

const factsSchema = z.object({
  /** Region of the gateway itself; empty: it has none, or it is an older gateway. */
  origin: z.string().max(64).default(''),
  data: z
    .array(
      z.object({
        /** Name of the region; empty: nodes that report no region. */
        region: z.string().max(64),
        nodes: count,
        price: z.object({ usd_kwh: z.number().nullable(), state: z.string().max(32) }),
        /** Number of round trips by upper bound, seconds. The last number is of round trips above all bounds. */
        round_trips: z
          .object({ at_most_s: z.array(z.number().positive()).max(64), counts: z.array(count).max(65) })
          .nullable(),
        models: z
          .array(
            z.object({
              model: z.string().max(256),
              replicas: count,
              kinds: z.array(z.object({ gpu: z.string().max(64).nullable(), gpus: count, replicas: count })).max(1_000),
              /** Nodes that measure the power of their GPUs, and its sum; older gateways do not report it. */
              power: z.object({ nodes: count, watts: z.number().nonnegative() }).default({ nodes: 0, watts: 0 }),
              running: count,
              waiting: count,
              /** Number of responses since the gateway began to count. */
              answered: count.nullable(),
              service_s: z.number().nonnegative().nullable(),
            }),
          )
          .max(1_000),
      }),
    )
    .max(64),
});

export type RegionFacts = z.infer<typeof factsSchema>['data'][number];
export type ModelFacts = RegionFacts['models'][number];

const PATH = '/admin/regions';

/** @throws SchedulerError if the gateway does not answer, or its answer has another form */
export async function regionFacts(gateway: PlannerGateway): Promise<{ origin: string; regions: RegionFacts[] }> {
  const { origin, data } = parseGatewayAnswer(factsSchema, await gateway.get(PATH), PATH);
  return { origin, regions: data };
}
