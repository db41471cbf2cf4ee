import type { BatchEndpoint, BatchError } from '../../shared/batch/batch-line.ts';
import type { BatchStatus, BatchTimes } from '../../shared/batch/batch-status.ts';
import type { Account } from '../accounts/account.ts';

/** The part of a batch that is fixed at its creation. */
export interface BatchSpec {
  id: string;
  owner: string;
  /** The account. Its rights are checked for each lease. */
  account: Account;
  endpoint: BatchEndpoint;
  inputFileId: string;
  /** False: the file does not exist, or belongs to another owner. */
  inputExists: boolean;
  /** Size of the input file. Absent: a batch of an older gateway. */
  inputBytes?: number;
  windowS: number;
  metadata: Record<string, string> | null;
  /** Lifetime of the output files in seconds from their creation; null: the default for batch files. */
  outputExpiresS: number | null;
}

/** The function that a batch runs. */
export interface BatchFunction {
  /** Names the context that a node must load: a hash of owner, code and name. */
  context: string;
  /** Absent: `infer`, or the only function of the file. */
  name?: string;
  /** SHA-256 of the code, hexadecimal. */
  sha256: string;
  /** Python, at most FUNCTION_MAX_BYTES. */
  code: string;
}

interface BatchCounts {
  total: number;
  completed: number;
  failed: number;
}

export interface BatchUsage {
  input: number;
  cached: number;
  output: number;
  reasoning: number;
}

/** The part of a batch that changes, as one stored value. */
export interface StoredBatchState {
  status: BatchStatus;
  times: BatchTimes;
  /** True if the batch is known to be in its owner's list. */
  listed?: boolean;
  paused: boolean;
  model: string | null;
  errors: BatchError[];
  counts: BatchCounts;
  usage: BatchUsage;
  outputFileId: string | null;
  errorFileId: string | null;
  /** Output tokens of results that arrived second and were dropped. */
  wastedTokens: number;
  requeued: number;
  /** Bytes of all results. Absent: none, or a batch that an earlier version started. */
  resultBytes?: number;
  /** Why its function was given up. Absent: it was not. */
  givenUp?: { code: 'engine_failed' | 'function_load_failed'; why: string };
}

export interface WrittenFiles {
  outputFileId: string | null;
  errorFileId: string | null;
  /** Successful responses that did not fit into the output file: their lines are in the error file. */
  leftOut: number;
}

export const NO_BATCH_USAGE: BatchUsage = { input: 0, cached: 0, output: 0, reasoning: 0 };

/** The members under `x_otela`, which OpenAI's object does not have. */
interface BatchProgress {
  leased: number;
  nodes: number;
  tokensPerS: number;
  linesPerS: number;
  /** Unix seconds; null: unknown. */
  estimatedEnd: number | null;
  /** Why the batch makes no progress now, for its owner. Null: it does, or it only waits for nodes. */
  waitingFor: string | null;
}

/** OpenAI's batch object, with this gateway's additions. */
export function batchJson(spec: BatchSpec, state: StoredBatchState, progress: BatchProgress) {
  const { input, cached, output, reasoning } = state.usage;
  return {
    id: spec.id,
    object: 'batch' as const,
    endpoint: spec.endpoint,
    model: state.model,
    errors: state.errors.length === 0 ? null : { object: 'list' as const, data: state.errors },
    input_file_id: spec.inputFileId,
    completion_window: '24h' as const,
    status: state.status,
    output_file_id: state.outputFileId,
    error_file_id: state.errorFileId,
    ...state.times,
    request_counts: state.counts,
    usage: {
      input_tokens: input,
      input_tokens_details: { cached_tokens: cached },
      output_tokens: output,
      output_tokens_details: { reasoning_tokens: reasoning },
      total_tokens: input + output,
    },
    metadata: spec.metadata,
    x_otela: {
      paused: state.paused,
      leased: progress.leased,
      requeued: state.requeued,
      nodes: progress.nodes,
      lines_per_s: progress.linesPerS,
      tokens_per_s: progress.tokensPerS,
      wasted_tokens: state.wastedTokens,
      estimated_end: progress.estimatedEnd,
      waiting_for: progress.waitingFor,
    },
  };
}

export type BatchObjectJson = ReturnType<typeof batchJson>;
