/** A request inside a replica. */
export interface Sequence {
  request: number;
  /**
   * Number of prompt tokens to compute before the next token, without the tokens that the prefix cache holds. After a
   * preemption it includes the response tokens so far.
   */
  prompt: number;
  /** Prompt tokens that the prefix cache held. */
  cached: number;
  /** Chained hashes of the prompt's full blocks. */
  hashes: readonly number[];
  /** Number of leading `hashes` that were in the cache. */
  shared: number;
  /** The hashes that this sequence added to the cache. */
  own: readonly number[];
  /** How many tokens of `prompt` are computed. */
  prefilled: number;
  /** Blocks that the sequence keeps for windows and states. */
  fixed: number;
  /** Response tokens that are still to come. While the sequence decodes: the number when its decoding began. */
  remaining: number;
  firstToken: number;
  /** Index of the micro-batch in which it decodes. */
  batch: number;
  /**
   * Number of tokens in the sequence's KV cache when its decoding began. Each step adds one token, which is not
   * counted here.
   */
  base: number;
  /** Step at which its decoding began. */
  since: number;
  phase: number;
  /** Increased when the sequence is preempted. A heap entry with another epoch no longer applies. */
  epoch: number;
  running: boolean;
}

/** The empty list of hashes, which all sequences without hashes share. */
export const NONE: readonly number[] = [];
