import { expertsOf, headsOf, layerCount, type Model } from '../catalogue/model.ts';

/**
 * How one replica is divided among GPUs. Each field names vLLM's option; an absent field is 1. Fields may be added, so
 * functions take a whole `Parallelism` and not only the tensor parallelism.
 */
export interface Parallelism {
  /** --tensor-parallel-size: every matrix is divided. */
  tp: number;
  /** --pipeline-parallel-size: layers are divided into stages, and as many batches run concurrently. */
  pp?: number;
  /** --data-parallel-size: attention is copied and the batch is divided; all GPUs together have one set of experts. */
  dp?: number;
  /** --enable-expert-parallel: each of the tp × dp GPUs has whole experts instead of a slice of each expert. */
  ep?: boolean;
  /**
   * Ulysses (Jacobs et al. 2023; Arctic Inference): the tokens of a step are divided, and heads are exchanged for
   * attention. Weights are copied.
   */
  sp?: number;
  /**
   * Parallelism of a separate engine that computes the prompts; the other fields are then those of the decode engine.
   * Both engines are in one node.
   */
  prefill?: Parallelism;
}

/** Returns the engines of a replica: one, or the decode and the prefill engine of a disaggregated pair. */
export function enginesOf<T extends Parallelism>(
  replica: T,
): { decode: Omit<T, 'prefill'>; prefill: Omit<T, 'prefill'> | undefined } {
  const { prefill, ...decode } = replica;
  return { decode, prefill: prefill && { ...decode, ...ALONE, ...prefill } };
}

/** Values of fields that are absent. */
const ALONE = { pp: 1, dp: 1, ep: false, sp: 1 };

interface Spread {
  tp: number;
  pp: number;
  dp: number;
  ep: boolean;
  sp: number;
}

export function spreadOf({ tp, pp = 1, dp = 1, ep = false, sp = 1 }: Parallelism): Spread {
  return { tp, pp, dp, ep, sp };
}

/** Number of GPUs of one replica, including those of its prefill engine. */
export function gpusOf(parallelism: Parallelism): number {
  const { tp, pp, dp, sp } = spreadOf(parallelism);
  return tp * pp * dp * sp + (parallelism.prefill === undefined ? 0 : gpusOf(parallelism.prefill));
}

/** Formats a parallelism for people: `TP 2 × PP 2`, `TP 1 × DP 8 + EP`, `prefill TP 1, decode TP 2`. */
export function parallelismText(parallelism: Parallelism): string {
  if (parallelism.prefill !== undefined)
    return `prefill ${parallelismText(parallelism.prefill)}, decode ${parallelismText(enginesOf(parallelism).decode)}`;
  const { tp, pp, dp, ep, sp } = spreadOf(parallelism);
  const factors = [
    `TP ${tp}`,
    ...(pp > 1 ? [`PP ${pp}`] : []),
    ...(dp > 1 ? [`DP ${dp}`] : []),
    ...(sp > 1 ? [`SP ${sp}`] : []),
  ];
  return factors.join(' × ') + (ep ? ' + EP' : '');
}

/** Returns why this model cannot have this parallelism, or undefined. */
export function parallelismProblem(model: Model, parallelism: Parallelism): string | undefined {
  const { prefill } = parallelism;
  if (prefill !== undefined) return pairProblem(model, enginesOf(parallelism).decode, prefill);
  const { tp, pp, dp, ep, sp } = spreadOf(parallelism);
  for (const [name, value] of [
    ['tensor', tp],
    ['pipeline', pp],
    ['data', dp],
    ['sequence', sp],
  ] as const) {
    if (!Number.isInteger(value) || value < 1)
      return `${name} parallelism must be a positive whole number, not ${value}`;
  }
  const { experts } = expertsOf(model);
  if (pp > layerCount(model))
    return `pipeline parallelism ${pp} is more than the ${layerCount(model)} layers of ${model.id}`;
  if (experts === 1 && ep) return `${model.id} has no experts, so expert parallelism is not possible`;
  if (experts === 1 && dp > 1)
    return `${model.id} has no experts: use ${dp} replicas instead of data parallelism ${dp}`;
  if (ep && experts % (tp * dp) !== 0) return `${tp * dp} GPUs do not divide the ${experts} experts of ${model.id}`;
  const heads = headsOf(model).heads;
  if (heads % (tp * sp) !== 0)
    return `tensor × sequence parallelism ${tp * sp} does not divide the ${heads} attention heads of ${model.id}`;
  return tpProblem(model, tp, ep ? undefined : tp * dp);
}

function pairProblem(model: Model, decode: Parallelism, prefill: Parallelism): string | undefined {
  if (prefill.prefill !== undefined) return 'a prefill engine cannot have a prefill engine';
  if (!hasTokenCache(model))
    return `${model.id} has layers with a recurrent state, which a prefill engine cannot transfer`;
  return parallelismProblem(model, decode) ?? parallelismProblem(model, prefill);
}

const hasTokenCache = (model: Model): boolean =>
  model.layers.every(({ mixers }) => mixers.every(({ kind }) => kind !== 'recurrent'));

/**
 * Pairs of a prefill and a decode engine in one node, each with tensor parallelism. Empty if the model's keys and
 * values cannot be transferred.
 */
export function pairsOf(model: Model, tps: readonly number[], gpusPerNode: number): Parallelism[] {
  if (!hasTokenCache(model)) return [];
  return tps.flatMap((prefill) =>
    tps.filter((tp) => prefill + tp <= gpusPerNode).map((tp): Parallelism => ({ tp, prefill: { tp: prefill } })),
  );
}

/**
 * Returns why the model cannot be divided by tensor parallelism, or undefined. `expertWays`: number of GPUs over which
 * each routed expert is divided; undefined: experts stay whole.
 */
export function tpProblem(model: Model, tp: number, expertWays: number | undefined = tp): string | undefined {
  if (!Number.isInteger(tp) || tp < 1) return `tensor parallelism must be a positive whole number, not ${tp}`;
  for (const { mixers, feedForward } of model.layers) {
    for (const mixer of mixers) {
      const problem = mixerProblem(mixer, tp);
      if (problem !== undefined) return `tensor parallelism ${tp} ${problem} of ${model.id}`;
    }
    if (feedForward === undefined) continue;
    const ways = feedForward.experts > 1 ? expertWays : tp;
    if (ways !== undefined && feedForward.width % ways !== 0)
      return `tensor parallelism ${ways} does not divide the feed-forward width ${feedForward.width} of ${model.id}`;
  }
  return undefined;
}

function mixerProblem(mixer: Model['layers'][number]['mixers'][number], tp: number): string | undefined {
  switch (mixer.kind) {
    case 'grouped':
      if (mixer.heads % tp !== 0) return `does not divide the ${mixer.heads} attention heads`;
      if (mixer.kvHeads % tp !== 0 && tp % mixer.kvHeads !== 0)
        return `neither divides nor is a multiple of the ${mixer.kvHeads} key-value heads`;
      return undefined;
    case 'latent':
      return mixer.heads % tp === 0 ? undefined : `does not divide the ${mixer.heads} attention heads`;
    case 'recurrent':
      return mixer.outputs % tp === 0 ? undefined : `does not divide the recurrent width ${mixer.outputs}`;
  }
}

/**
 * Parallelisms to try for a model on a node with this many GPUs, smallest first: tensor parallelism in powers of two;
 * for models with experts also expert parallelism and data-parallel attention; pipelines if tensors cannot be divided
 * further (odd head counts) or GPUs have no fast link. With `longPrompts` also sequence parallelism, which helps long
 * prompts.
 */
export function parallelismsOf(
  model: Model,
  gpusPerNode: number,
  { fastLink = true, longPrompts = false }: { fastLink?: boolean; longPrompts?: boolean } = {},
): Parallelism[] {
  const powers = [1, 2, 4, 8, 16, 32, 64].filter((n) => n <= gpusPerNode);
  const { experts } = expertsOf(model);
  const found: Parallelism[] = [];
  for (const gpus of powers) {
    const tensorFits = parallelismProblem(model, { tp: gpus }) === undefined;
    found.push({ tp: gpus });
    if (experts > 1 && gpus > 1) {
      found.push({ tp: gpus, ep: true }, { tp: 1, dp: gpus, ep: true });
    }
    if (gpus > 1 && (!tensorFits || !fastLink))
      for (const tp of powers) if (tp < gpus) found.push({ tp, pp: gpus / tp });
    if (longPrompts && experts === 1 && gpus > 1) found.push({ tp: 1, sp: gpus });
  }
  return found.filter((one) => parallelismProblem(model, one) === undefined);
}
