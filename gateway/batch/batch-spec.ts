import type { BatchEndpoint, BatchError } from '../../shared/batch/line.ts';
import type { BatchStatus, BatchTimes } from '../../shared/batch/status.ts';
import type { Account } from '../accounts/account.ts';

/** What a batch is from its creation on. */
export interface BatchSpec {
  id: string;
  owner: string;
  /** Whose rights each lease is checked against. */
  account: Account;
  endpoint: BatchEndpoint;
  inputFileId: string;
  /** False: there is no such file, or it is another owner's. */
  inputExists: boolean;
  /** Of the input file; absent in batches of an older gateway. */
  inputBytes?: number;
  windowS: number;
  metadata: Record<string, string> | null;
  /** Life of the output files, in seconds from their making; null: that of batch files. */
  outputExpiresS: number | null;
}

/** The function that a batch runs. */
export interface BatchFunction {
  /** Names what must be loaded: owner, code and name, hashed. */
  context: string;
  /** Absent: `infer`, or the only one of the file. */
  name?: string;
  /** Of the code, hexadecimal. */
  sha256: string;
  /** Python, at most FUNCTION_MAX_BYTES. */
  code: string;
}

export interface BatchCounts {
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

/** What of a batch changes, one stored value. */
export interface StoredBatchState {
  status: BatchStatus;
  times: BatchTimes;
  /** On its owner's list for sure. */
  listed?: boolean;
  paused: boolean;
  model: string | null;
  errors: BatchError[];
  counts: BatchCounts;
  usage: BatchUsage;
  outputFileId: string | null;
  errorFileId: string | null;
  /** Tokens of results that came second. */
  wastedTokens: number;
  requeued: number;
  /** Of all results; absent: none, or of a batch that an earlier version began. */
  resultBytes?: number;
  /** Why its function is given up; absent: it is not. */
  givenUp?: { code: 'engine_failed' | 'function_load_failed'; why: string };
}

export const NO_BATCH_USAGE: BatchUsage = { input: 0, cached: 0, output: 0, reasoning: 0 };

/** What is beside OpenAI's fields, under `x_otela`. */
export interface BatchProgress {
  leased: number;
  nodes: number;
  tokensPerS: number;
  linesPerS: number;
  /** Unix seconds; null: not known. */
  estimatedEnd: number | null;
  /** Why it does not go on now, for its owner; null: it does, or waits for nodes alone. */
  waitingFor: string | null;
}

/** OpenAI's batch object, with ours beside it. */
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
