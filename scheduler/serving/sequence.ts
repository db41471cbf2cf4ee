/** A request inside a replica. */
export interface Sequence {
  request: number;
  /**
   * Prompt tokens to compute before the next token, without those of the prefix cache; grows when the sequence is
   * preempted.
   */
  prompt: number;
  /** Prompt tokens that the prefix cache held. */
  cached: number;
  /**
   * Chained hashes of the prompt's full blocks. The first `shared` of them were in the cache; `own` are the ones that
   * this sequence added.
   */
  hashes: readonly number[];
  shared: number;
  own: readonly number[];
  /** Computed part of `prompt`. */
  prefilled: number;
  /** Blocks that it keeps for windows and states. */
  fixed: number;
  /** Response tokens that are still to come; while it decodes, as of the start of its decoding. */
  remaining: number;
  firstToken: number;
  /** Keys and values held when its decoding began, and the step at which it began: it gains one per step. */
  base: number;
  since: number;
  phase: number;
  /** A finish in the heap with another epoch is void, because the sequence was preempted since. */
  epoch: number;
  running: boolean;
}

/** Shared by all sequences without hashes. */
export const NONE: readonly number[] = [];
