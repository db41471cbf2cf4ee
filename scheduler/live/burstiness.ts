import * as z from 'zod';
import type { PlannerGateway } from './planner-gateway.ts';

/** Number of minutes with counts that are compared. */
const MINUTES = 10;
/** If there are fewer requests per minute, bursts cannot be measured. */
const REQUESTS_MIN = 5;
/**
 * Bounds of the dispersion (variance divided by mean) of ten counts. If arrivals are Poisson, the dispersion is within
 * these bounds in 95 of 100 cases. So a dispersion within them counts as Poisson.
 */
const POISSON_MIN = 0.3;
const POISSON_MAX = 1.9;
/**
 * Bounds of the returned coefficients of variation, because ten counts are too few to measure more extreme
 * coefficients.
 */
const [CV_MIN, CV_MAX] = [0.3, 4];

const answerSchema = z.object({
  data: z.array(z.object({ model: z.string(), requests: z.number().nonnegative().optional() })).max(100_000),
});

/**
 * Coefficient of variation of the gaps between arrivals, by model, from the counts of the last minutes. If gaps are
 * independent, the variance of the counts over their mean approaches the square of this coefficient (Cox 1962).
 * Arrivals of a model that is absent count as Poisson. If a gateway returns no counts, all models are absent.
 */
export async function burstiness(
  gateway: PlannerGateway,
  models: readonly string[],
  idOf: (name: string) => string | undefined,
): Promise<Map<string, number>> {
  if (models.length === 0) return new Map();
  const windows = await Promise.all(
    Array.from({ length: MINUTES }, async (_, i) =>
      countsOf(await gateway.get(`/admin/workload?window=${i + 1}m`), idOf),
    ),
  );
  const found = new Map<string, number>();
  for (const model of models) {
    const upTo = windows.map((counts) => counts.get(model) ?? 0);
    const counts = upTo.map((sum, i) => Math.max(0, sum - (upTo[i - 1] ?? 0)));
    const cv = variation(counts);
    if (cv !== undefined) found.set(model, cv);
  }
  return found;
}

function countsOf(answer: unknown, idOf: (name: string) => string | undefined): Map<string, number> {
  const counts = new Map<string, number>();
  const parsed = answerSchema.safeParse(answer);
  for (const { model, requests } of parsed.success ? parsed.data.data : []) {
    const id = idOf(model);
    if (id !== undefined && requests !== undefined) counts.set(id, (counts.get(id) ?? 0) + requests);
  }
  return counts;
}

/** Coefficient of variation of the gaps; undefined if the counts do not distinguish it from 1. */
export function variation(counts: readonly number[]): number | undefined {
  const mean = counts.reduce((sum, one) => sum + one, 0) / Math.max(1, counts.length);
  if (counts.length < 2 || mean < REQUESTS_MIN) return undefined;
  const variance = counts.reduce((sum, one) => sum + (one - mean) ** 2, 0) / (counts.length - 1);
  const dispersion = variance / mean;
  if (dispersion >= POISSON_MIN && dispersion <= POISSON_MAX) return undefined;
  return Math.min(CV_MAX, Math.max(CV_MIN, Math.sqrt(dispersion)));
}
