/** A request inside a replica. */
export interface Sequence {
  request: number;
  /** Prompt tokens to compute before the next token, without those from the prefix cache; grows when it is pre-empted. */
  prompt: number;
  /** Prompt tokens that the prefix cache gave. */
  cached: number;
  /** Chained hashes of the prompt's full blocks; of these, the first `shared` came from the cache and `own` are its own there. */
  hashes: readonly number[];
  shared: number;
  own: readonly number[];
  /** Of `prompt`, computed. */
  prefilled: number;
  /** Blocks that it keeps for windows and states. */
  fixed: number;
  /** Answer tokens still to come. */
  remaining: number;
  firstToken: number;
  /** Keys and values held when its decoding began, and the step at which it began: it gains one per step. */
  base: number;
  since: number;
  phase: number;
  /** A finish in the heap with another epoch is void: it was pre-empted since. */
  epoch: number;
  running: boolean;
}

/** Hashes of a sequence without: one array for all of them. */
export const NONE: readonly number[] = [];
