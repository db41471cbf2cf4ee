import * as z from 'zod';
import { type Layer, type LayerPart, layerMatrices, type Mixer, windowOf } from './layers.ts';
import type { Precision } from './precision.ts';

const count = z.number().int().positive().max(10_000_000);

/** One row of `data/models.json`: a decoder with equal layers. Other models are read from their `config.json`. */
const modelRowSchema = z.strictObject({
  id: z.string().min(1).max(256),
  layers: count.max(1000),
  hidden: count,
  heads: count.max(10_000),
  kv_heads: count.max(10_000),
  head_dim: count.max(10_000),
  ffn: count,
  vocab: count,
  gated: z.boolean(),
  tied: z.boolean(),
  experts: count.max(10_000).optional(),
  experts_per_token: count.max(1000).optional(),
  /** Width of a block that processes every token in addition to its experts. */
  shared_ffn: z.number().int().nonnegative().optional(),
  context: count.max(100_000_000).optional(),
  source: z.string().max(256).optional(),
});
export const modelFileSchema = z.object({ models: z.array(modelRowSchema).max(10_000) });

/** The precisions in which a checkpoint stores weights, and in which it requests keys and values. */
export interface Storage {
  /** Precision of most weights. It is the value of `weights` in a deployment of this checkpoint. */
  weights: Precision;
  parts: Readonly<Record<LayerPart, Precision>>;
  kv: Precision;
}

/** The shape of a decoder, in counts, not bytes. */
export interface Model {
  id: string;
  hidden: number;
  vocab: number;
  /** True if the embedding is also the output head. */
  tied: boolean;
  layers: readonly Layer[];
  /** Parameters that are loaded but process no text tokens: the vision tower. */
  extra: number;
  storage: Storage;
  /** Longest sequence in tokens; 0: unknown. */
  context: number;
  source: string;
  /**
   * Set if only the name of the model is known. Such a model can be placed only on hardware with a measurement of it.
   */
  opaque?: true;
}

export const SIXTEEN_BIT: Storage = {
  weights: 'bf16',
  parts: { attention: 'bf16', dense: 'bf16', experts: 'bf16', shared_experts: 'bf16' },
  kv: 'bf16',
};

export function modelFromRow(row: z.infer<typeof modelRowSchema>): Model {
  const { id, hidden, vocab, tied, heads, gated } = row;
  const attention: Mixer = {
    kind: 'grouped',
    heads,
    kvHeads: row.kv_heads,
    headDim: row.head_dim,
    window: 0,
    gate: false,
    sharedKeyValue: false,
  };
  const feedForward = {
    width: row.ffn,
    gated,
    experts: row.experts ?? 1,
    active: row.experts_per_token ?? 1,
    shared: row.shared_ffn ?? 0,
    latent: 0,
  };
  return {
    id,
    hidden,
    vocab,
    tied,
    layers: [{ count: row.layers, mixers: [attention], feedForward }],
    extra: 0,
    storage: SIXTEEN_BIT,
    context: row.context ?? 0,
    source: row.source ?? '',
  };
}

/** Returns a model that is known only by its name. */
export const opaqueModel = (id: string): Model => ({
  id,
  hidden: 0,
  vocab: 0,
  tied: true,
  layers: [],
  extra: 0,
  storage: SIXTEEN_BIT,
  context: 0,
  source: 'measured',
  opaque: true,
});

export const layerCount = (model: Model): number => model.layers.reduce((sum, layer) => sum + layer.count, 0);

/** Number of parameters of embedding and head. If they are the same matrix, it counts once. */
export const embeddingParameters = (model: Model): number => (model.tied ? 1 : 2) * model.hidden * model.vocab;

/** Number of parameters as stored. Norms and biases are left out; together they are below a thousandth. */
export function parameters(model: Model): number {
  return model.extra + embeddingParameters(model) + sumOfLayers(model, ({ matrices }) => matrices);
}

/**
 * Number of parameters that process one text token. For a dense model these are all parameters, as publishers count.
 * For a model with experts the embedding does not count, because a token reads one row of it. (The publisher of gpt-oss
 * counts like this; that of Llama 4 includes the embedding, 6 % more.)
 */
export function activeParameters(model: Model): number {
  if (expertsOf(model).experts === 1) return parameters(model);
  return model.hidden * model.vocab + sumOfLayers(model, ({ active }) => active);
}

function sumOfLayers(model: Model, copies: (matrix: { matrices: number; active: number }) => number): number {
  return model.layers.reduce((sum, layer) => {
    const small = layer.mixers.reduce((all, mixer) => all + (mixer.kind === 'recurrent' ? mixer.small : 0), 0);
    const products = layerMatrices(layer, model.hidden).reduce(
      (all, matrix) => all + copies(matrix) * matrix.inner * matrix.outer,
      0,
    );
    return sum + layer.count * (products + small);
  }, 0);
}

/** Widest window of any layer, tokens; 0: every layer has full attention. */
export function windowTokens(model: Model): number {
  return Math.max(0, ...model.layers.flatMap(({ mixers }) => mixers.map(windowOf)));
}

/** Attention heads of the layer with the most heads, for messages. */
export function headsOf(model: Model): { heads: number; kvHeads: number } {
  const all = model.layers.flatMap(({ mixers }) => mixers);
  return {
    heads: Math.max(0, ...all.map((mixer) => (mixer.kind === 'recurrent' ? 0 : mixer.heads))),
    kvHeads: Math.max(
      0,
      ...all.map((mixer) => (mixer.kind === 'grouped' ? mixer.kvHeads : mixer.kind === 'latent' ? 1 : 0)),
    ),
  };
}

/**
 * Number of experts in the layer with the most experts, and how many of them process a token. Both are 1 for a dense
 * model.
 */
export function expertsOf(model: Model): { experts: number; active: number } {
  const blocks = model.layers.flatMap(({ feedForward }) => (feedForward ? [feedForward] : []));
  return blocks.reduce((most, one) => (one.experts > most.experts ? one : most), { experts: 1, active: 1 });
}
