import * as z from 'zod';

const count = z.number().int().positive().max(10_000_000);

/** One row of `data/models.json`. */
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
  /** Width of a block that every token passes beside its experts. */
  shared_ffn: z.number().int().nonnegative().optional(),
  context: count.optional(),
  source: z.string().max(256).optional(),
});
export const modelFileSchema = z.object({ models: z.array(modelRowSchema).max(10_000) });

/** The shape of a decoder-only transformer; counts, not bytes. */
export interface Model {
  id: string;
  layers: number;
  hidden: number;
  heads: number;
  kvHeads: number;
  headDim: number;
  /** Of one expert where there are several. */
  ffn: number;
  vocab: number;
  /** Three matrices in the feed-forward block (gate, up, down), not two. */
  gated: boolean;
  /** The output head is the embedding. */
  tied: boolean;
  /** 1 for a dense model. */
  experts: number;
  expertsPerToken: number;
  sharedFfn: number;
  /** Longest sequence in tokens, 0 if not known. */
  context: number;
  source: string;
}

export function modelFromRow(row: z.infer<typeof modelRowSchema>): Model {
  return {
    id: row.id,
    layers: row.layers,
    hidden: row.hidden,
    heads: row.heads,
    kvHeads: row.kv_heads,
    headDim: row.head_dim,
    ffn: row.ffn,
    vocab: row.vocab,
    gated: row.gated,
    tied: row.tied,
    experts: row.experts ?? 1,
    expertsPerToken: row.experts_per_token ?? 1,
    sharedFfn: row.shared_ffn ?? 0,
    context: row.context ?? 0,
    source: row.source ?? '',
  };
}

/** Weights in parameters, as stored: embedding and head once each unless tied. */
export function parameters(model: Model): number {
  return model.layers * layerParameters(model) + (model.tied ? 1 : 2) * model.hidden * model.vocab;
}

function layerParameters(model: Model): number {
  const { hidden, heads, kvHeads, headDim, ffn, experts, sharedFfn } = model;
  const matrices = model.gated ? 3 : 2;
  const attention = hidden * (heads + 2 * kvHeads) * headDim + heads * headDim * hidden;
  const router = experts > 1 ? hidden * experts : 0;
  return attention + matrices * hidden * (ffn * experts + sharedFfn) + router;
}
