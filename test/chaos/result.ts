/** A run as stored in bench/results/chaos.json, from which report and picture are made. */
import { z } from 'zod';

/** JSON has no NaN: null stands for an event that did not happen. */
const perhaps = z.number().nullable();
const quantiles = z.object({ p50: perhaps, p99: perhaps });

const partA = z.looseObject({
  seconds: z.number(),
  perSecond: z.number(),
  load: z.number(),
  tallies: z.array(
    z.object({
      kind: z.string(),
      requests: z.number(),
      verdicts: z.object({
        ok: z.number(),
        failed: z.number(),
        broken: z.number(),
        false: z.number(),
        left: z.number(),
      }),
      retried: z.number(),
      continued: z.number(),
    }),
  ),
  strikes: z.array(z.object({ at: z.number(), until: perhaps, replica: z.string(), fault: z.string() })),
  latency: z.array(z.object({ what: z.string(), calm: quantiles, chaos: quantiles })),
  accounts: z.object({
    attempts: z.number(),
    doubles: z.number(),
    doublesWithinReach: z.array(z.string()),
    leftMs: z.array(z.number()),
    leftBehind: z.array(z.string()),
    generating: z.array(z.string()),
    takenOverMs: z.array(z.number()),
  }),
  beginAt: z.number(),
  samples: z.array(
    z.object({ at: z.number(), serving: z.number(), tokens: z.number(), ended: z.number(), errors: z.number() }),
  ),
});

const partB = z.looseObject({
  pearson: z.number(),
  tokensPerReplica: z.number(),
  engineTokensPerSecond: z.number(),
  clients: z.number(),
  requests: z.number(),
  errors: z.number(),
  windows: z.array(
    z.object({
      at: z.number(),
      serving: z.number(),
      tokensPerSecond: z.number(),
      /** Older results counted all windows. */
      settled: z.boolean().default(true),
    }),
  ),
});

const partC = z.looseObject({
  requests: z.number(),
  unexcused: z.array(z.string()),
  kills: z.array(z.object({ listensMs: z.number(), allBackMs: perhaps, failed: z.number(), saved: z.number() })),
});

/** The machine of the run that a part is from. */
const machine = z.object({
  cpu: z.string(),
  cores: z.number(),
  memory_mib: z.number(),
  kernel: z.string(),
  node: z.string(),
  load: z.number(),
  stolen: z.number().default(0),
  date: z.string(),
});

export const resultSchema = z.looseObject({
  measured: z.object({ a: machine.optional(), b: machine.optional(), c: machine.optional() }),
  options: z.object({
    seed: z.number(),
    replicas: z.number(),
    slots: z.number(),
    tokensPerSecond: z.number(),
    slurm: z.boolean(),
  }),
  a: partA.optional(),
  b: partB.optional(),
  c: partC.optional(),
  /** `what` begins with the part's letter. */
  findings: z.array(z.object({ what: z.string(), seen: z.string(), required: z.string(), met: z.boolean() })),
});

export type Run = z.infer<typeof resultSchema>;
