/**
 * The parts of a decoder. Widths and counts are numbers of elements. Shapes are those of `config.json`, before
 * parallelism. Every layer has mixers (attention, a recurrent mixer, or both in parallel) and possibly a feed-forward
 * block.
 */

/** Grouped-query attention (Ainslie et al. 2023). Multi-head and multi-query attention are its two extremes. */
export interface GroupedAttention {
  kind: 'grouped';
  heads: number;
  kvHeads: number;
  headDim: number;
  /** Tokens that a query attends to; 0: all previous tokens. */
  window: number;
  /** True if the query projection also produces a gate for the attention's output. */
  gate: boolean;
  /** True if keys serve as values, which saves a projection (Gemma 4's global layers). The cache holds both. */
  sharedKeyValue: boolean;
}

/** Multi-head latent attention (DeepSeek-V2, 2024): all heads share one compressed vector per token. */
export interface LatentAttention {
  kind: 'latent';
  heads: number;
  /** Rank of the query's compression; 0: not compressed. */
  queryRank: number;
  kvRank: number;
  nopeDim: number;
  ropeDim: number;
  valueDim: number;
}

/**
 * A recurrent mixer: Mamba, Mamba-2 or the gated delta rule. Each sequence has a state of fixed size instead of keys
 * and values.
 */
export interface RecurrentMixer {
  kind: 'recurrent';
  /** Sum of the output widths of the projections into the mixer. */
  inputs: number;
  /** Input width of the projection from the mixer back to the hidden width. */
  outputs: number;
  /** Parameters outside the large products: convolution, decay, norm. */
  small: number;
  /** Bytes of state per sequence. */
  stateBytes: number;
}

export type Mixer = GroupedAttention | LatentAttention | RecurrentMixer;

export interface FeedForward {
  /** Width of the dense block, or of one expert. */
  width: number;
  /** True if the block has gate, up and down matrices; false: up and down only. */
  gated: boolean;
  /** Number of experts; 1: the block is dense. */
  experts: number;
  /** Number of experts that process each token. */
  active: number;
  /** Width of the blocks that process every token in addition to its experts; 0: there are none. */
  shared: number;
  /** Width of the vectors on which routed experts work (Nemotron 3 Super); 0: the hidden width. */
  latent: number;
}

/** `count` equal layers of a model. The order of layers does not affect time and memory. */
export interface Layer {
  count: number;
  mixers: readonly Mixer[];
  feedForward?: FeedForward;
}

/** Parts of a model that a checkpoint may store in different precisions. */
const PARTS = ['attention', 'dense', 'experts', 'shared_experts'] as const;
export type LayerPart = (typeof PARTS)[number];

/** A group of equal matrices [inner, outer]. One token uses `active` of `matrices`. */
export interface Matrix {
  name: string;
  part: LayerPart | 'router';
  inner: number;
  outer: number;
  matrices: number;
  active: number;
  /**
   * The dimension that tensor parallelism divides: the output (outer), the input (inner), or none (each GPU has a
   * copy).
   */
  split: 'outer' | 'inner' | 'none';
}

const one = { matrices: 1, active: 1 } as const;

/** Returns the large products of one layer, undivided. */
export function layerMatrices(layer: Layer, hidden: number): Matrix[] {
  return [
    ...layer.mixers.flatMap((mixer) => mixerMatrices(mixer, hidden)),
    ...feedForwardMatrices(layer.feedForward, hidden),
  ];
}

function mixerMatrices(mixer: Mixer, hidden: number): Matrix[] {
  const part = 'attention';
  switch (mixer.kind) {
    case 'grouped': {
      const { heads, kvHeads, headDim, gate, sharedKeyValue } = mixer;
      const outer = ((gate ? 2 : 1) * heads + (sharedKeyValue ? 1 : 2) * kvHeads) * headDim;
      return [
        { name: 'qkv', part, inner: hidden, outer, split: 'outer', ...one },
        { name: 'o_proj', part, inner: heads * headDim, outer: hidden, split: 'inner', ...one },
      ];
    }
    case 'latent': {
      const { heads, queryRank, kvRank, nopeDim, ropeDim, valueDim } = mixer;
      const query: Matrix[] =
        queryRank > 0
          ? [
              { name: 'q_a', part, inner: hidden, outer: queryRank, split: 'none', ...one },
              { name: 'q_b', part, inner: queryRank, outer: heads * (nopeDim + ropeDim), split: 'outer', ...one },
            ]
          : [{ name: 'q', part, inner: hidden, outer: heads * (nopeDim + ropeDim), split: 'outer', ...one }];
      return [
        ...query,
        { name: 'kv_a', part, inner: hidden, outer: kvRank + ropeDim, split: 'none', ...one },
        { name: 'kv_b', part, inner: kvRank, outer: heads * (nopeDim + valueDim), split: 'outer', ...one },
        { name: 'o_proj', part, inner: heads * valueDim, outer: hidden, split: 'inner', ...one },
      ];
    }
    case 'recurrent':
      return [
        { name: 'mixer_in', part, inner: hidden, outer: mixer.inputs, split: 'outer', ...one },
        { name: 'mixer_out', part, inner: mixer.outputs, outer: hidden, split: 'inner', ...one },
      ];
  }
}

function feedForwardMatrices(block: FeedForward | undefined, hidden: number): Matrix[] {
  if (block === undefined) return [];
  const { width, gated, experts, active, shared, latent } = block;
  const routed = { matrices: experts, active };
  const part = experts > 1 ? 'experts' : 'dense';
  const inner = latent > 0 ? latent : hidden;
  const up = gated ? 2 : 1;
  const matrices: Matrix[] = [
    { name: 'up', part, inner, outer: up * width, split: 'outer', ...routed },
    { name: 'down', part, inner: width, outer: inner, split: 'inner', ...routed },
  ];
  if (latent > 0) {
    matrices.push({ name: 'latent_in', part: 'shared_experts', inner: hidden, outer: latent, split: 'none', ...one });
    matrices.push({ name: 'latent_out', part: 'shared_experts', inner: latent, outer: hidden, split: 'none', ...one });
  }
  // Each GPU computes the router completely.
  if (experts > 1)
    matrices.push({ name: 'router', part: 'router', inner: hidden, outer: experts, split: 'none', ...one });
  if (shared > 0) {
    const shares = { part: 'shared_experts', ...one } as const;
    matrices.push({ name: 'shared_up', inner: hidden, outer: up * shared, split: 'outer', ...shares });
    matrices.push({ name: 'shared_down', inner: shared, outer: hidden, split: 'inner', ...shares });
  }
  return matrices;
}

/** Returns the number of elements of keys and values per token in one layer. */
export function cacheElements(mixer: Mixer): number {
  switch (mixer.kind) {
    case 'grouped':
      return 2 * mixer.kvHeads * mixer.headDim;
    case 'latent':
      return mixer.kvRank + mixer.ropeDim;
    case 'recurrent':
      return 0;
  }
}

/** Number of tokens that the mixer attends to; 0: all. */
export const windowOf = (mixer: Mixer): number => (mixer.kind === 'grouped' ? mixer.window : 0);
