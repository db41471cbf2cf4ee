import * as z from 'zod';
import type { HardwareCatalogue } from '../catalogue/catalogue.ts';
import { type Model, opaqueModel } from '../catalogue/model.ts';
import { PRECISIONS, type Precision } from '../catalogue/precision.ts';
import type { Demand, ObservedCapacity } from '../solver/planning-problem.ts';
import { burstiness } from './burstiness.ts';
import { knownModel, type PlacementNode, parseGatewayAnswer } from './live-nodes.ts';
import type { PlannerGateway } from './planner-gateway.ts';

/**
 * The fields of `/admin/workload?window=…` that placement needs. All are numbers; a model without responses has means
 * of 0.
 */
const spread = z.object({ mean: z.number().nonnegative(), deviation: z.number().nonnegative() });
const workloadSchema = z.object({
  window_ms: z.number().positive().optional(),
  data: z
    .array(
      z.object({
        /** A name that a client requested. A name that no model can have is skipped, like every unknown name. */
        model: z.string(),
        requests_per_second: z.number().nonnegative(),
        /** Requests that were refused because no node served the model; older gateways omit this field. */
        unserved: z.number().nonnegative().default(0),
        input: spread,
        output: spread,
      }),
    )
    .max(100_000),
});

/** Maximum number of characters of a name that are logged; real names are shorter. */
const NAME_CHARS = 256;

/** Assumed lengths of requests to a model without responses: the lengths of a chat. */
const GUESS = {
  input: { kind: 'lognormal' as const, mean: 512, sd: 512 },
  output: { kind: 'lognormal' as const, mean: 256, sd: 256 },
};

/**
 * `window` in the gateway's form: `10m`, `1h`. `nodes`: if a serving node claims the precision of a model's weights,
 * that precision counts; otherwise the catalogue's.
 */
export async function liveWorkload(
  gateway: PlannerGateway,
  catalogue: HardwareCatalogue,
  window: string,
  log: (line: string) => void,
  nodes: readonly PlacementNode[] = [],
): Promise<Demand[]> {
  const path = `/admin/workload?window=${encodeURIComponent(window)}`;
  const { data, window_ms } = parseGatewayAnswer(workloadSchema, await gateway.get(path), path);
  const lengths = ({ mean, deviation }: { mean: number; deviation: number }) => ({
    kind: 'lognormal' as const,
    mean: Math.max(1, mean),
    sd: deviation,
  });
  const demands = new Map<string, Demand>();
  for (const row of data) {
    const observed = observedOf(row, nodes);
    const model = knownModel(catalogue, row.model) ?? (observed.length > 0 ? opaqueModel(row.model) : undefined);
    if (model === undefined) {
      log(
        `${row.model.slice(0, NAME_CHARS)} is requested but skipped: it is not in the catalogue and no node serves it (add it with --models NAME=config.json, or measure it: --measured)`,
      );
      continue;
    }
    if (model.opaque === true && observed.length > 0)
      log(
        `${row.model} is not in the catalogue: planned with the current throughput of its replicas, ${observed[0]?.rate.toPrecision(3)} requests/s each (--models NAME=config.json describes it)`,
      );
    // If clients use two names for one model, the lengths of the name with more requests count for the model.
    const known = demands.get(model.id);
    // Refused requests count as demand, so that a model without a replica gets one.
    const unserved = window_ms === undefined ? 0 : row.unserved / (window_ms / 1000);
    const rate = row.requests_per_second + unserved + (known?.rate ?? 0);
    const guessed = row.input.mean === 0 && row.output.mean === 0;
    if (guessed && unserved > 0)
      log(`no node has served ${model.id}: planned with ${GUESS.input.mean} + ${GUESS.output.mean} tokens`);
    const seen = guessed ? GUESS : { input: lengths(row.input), output: lengths(row.output) };
    const { input, output } = known !== undefined && known.rate > row.requests_per_second ? known : seen;
    const weights = servedWeights(nodes, catalogue, model) ?? model.storage.weights;
    const seenToDo = model.opaque === true ? { observed } : {};
    demands.set(model.id, { model, rate, cv: 1, input, output, weights, kv: model.storage.kv, ...seenToDo });
  }
  const cv = await burstiness(gateway, [...demands.keys()], (name) => knownModel(catalogue, name)?.id);
  return [...demands.values()].map((demand) => ({ ...demand, cv: cv.get(demand.model.id) ?? 1 }));
}

/** Rate of each replica of a model, assuming that requests are spread evenly; empty if no request was served. */
function observedOf(
  { model, requests_per_second: rate }: { model: string; requests_per_second: number },
  nodes: readonly PlacementNode[],
): ObservedCapacity[] {
  const serving = nodes.filter(({ models }) => models.includes(model));
  if (rate <= 0) return [];
  const kinds = new Map(serving.map(({ gpu, gpus }) => [`${gpu.id} ${gpus}`, { gpu: gpu.id, tp: gpus }]));
  return [...kinds.values()].map((kind) => ({ ...kind, rate: rate / serving.length }));
}

/**
 * The first precision that a node claims for the model's weights and that this version knows; undefined if there is
 * none.
 */
function servedWeights(
  nodes: readonly PlacementNode[],
  catalogue: HardwareCatalogue,
  model: Model,
): Precision | undefined {
  for (const { quantization } of nodes) {
    for (const [name, how] of quantization) {
      if (knownModel(catalogue, name)?.id !== model.id) continue;
      const precision = precisionOf(how);
      if (precision !== undefined) return precision;
    }
  }
  return undefined;
}

/** Names of quantizations in vLLM and SGLang. */
function precisionOf(quantization: string): Precision | undefined {
  const name = quantization.toLowerCase();
  const found = PRECISIONS.find((one) => name === one || name.startsWith(`${one}_`) || name.endsWith(`_${one}`));
  if (found !== undefined) return found;
  if (/awq|gptq|w4a16|4bit/.test(name)) return 'int4';
  return /w8a8|8bit/.test(name) ? 'int8' : undefined;
}
