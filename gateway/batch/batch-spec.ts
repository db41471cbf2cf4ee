import type { BatchEndpoint, BatchError } from '../../shared/batch/batch-line.ts';
import type { BatchStatus, BatchTimes } from '../../shared/batch/batch-status.ts';
import { completionWindowText } from '../../shared/batch/completion-window.ts';
import type { Account } from '../accounts/account.ts';
import type { ContextCounts } from './leases/node-contexts.ts';

/** The part of a batch that is fixed at its creation. */
export interface BatchSpec {
  id: string;
  owner: string;
  /** The account that created the batch. Its rights are checked for each lease. */
  account: Account;
  endpoint: BatchEndpoint;
  inputFileId: string;
  /** True if the input file exists and belongs to the owner. */
  inputExists: boolean;
  /** Bytes of the input file. Absent: the batch was created by an older version. */
  inputBytes?: number;
  windowS: number;
  metadata: Record<string, string> | null;
  /** Batches with results that its lines may need. Absent: none. */
  after?: string[];
  /** Number of batches in the longest chain that leads to this one. Absent: 0. */
  depth?: number;
  /** Lifetime of the output files in seconds from their creation; null: the default for batch files. */
  outputExpiresS: number | null;
}

/** The function that a batch runs. */
export interface BatchFunction {
  /** Id of the context that a node must load: a hash of owner, code and name. */
  context: string;
  /** Name of the function in its file; absent: `infer`, or the file's only function. */
  name?: string;
  /** SHA-256 of the code, in hex. */
  sha256: string;
  /** Python code, at most FUNCTION_MAX_BYTES. */
  code: string;
  /** Files of the owner that its calls read. Absent: none. */
  files?: string[];
  /** Names of the secrets that it declares. Absent: none. */
  secrets?: string[];
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

/** The part of a batch that changes, stored as one value. */
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
  /** Output tokens of duplicate results, which were dropped. */
  wastedTokens: number;
  requeued: number;
  /** Leases since the start, and those of them at nodes on which the function was loaded. Absent: none. */
  leases?: { all: number; warm: number };
  /** GPU time of a function's lines in milliseconds. Absent: none. */
  gpuMs?: number;
  /** Bytes of all results. Absent: no results, or the batch was started by an earlier version. */
  resultBytes?: number;
  /** Why the function was given up; absent: it was not. */
  givenUp?: { code: 'engine_failed' | 'function_load_failed'; why: string };
}

export interface WrittenFiles {
  outputFileId: string | null;
  errorFileId: string | null;
  /** Successful responses that did not fit into the output file: their lines are in the error file. */
  leftOut: number;
}

export const NO_BATCH_USAGE: BatchUsage = { input: 0, cached: 0, output: 0, reasoning: 0 };

/** Members of the batch object under `x_otela`, which OpenAI's object does not have. */
interface BatchProgress {
  leased: number;
  nodes: number;
  tokensPerS: number;
  linesPerS: number;
  /** Estimated end in seconds since the epoch; null: unknown. */
  estimatedEnd: number | null;
  /** For the owner: why the batch makes no progress now. Null: it makes progress, or only waits for nodes. */
  waitingFor: string | null;
  /** Nodes with the batch's function. Null: unknown, or no function. */
  contexts: ContextCounts | null;
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
    completion_window: completionWindowText(spec.windowS),
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
      gpu_seconds: Math.round((state.gpuMs ?? 0) / 10) / 100,
      estimated_end: progress.estimatedEnd,
      waiting_for: progress.waitingFor,
      contexts: progress.contexts,
      ...(spec.after !== undefined && { after: spec.after }),
    },
  };
}

export type BatchObjectJson = ReturnType<typeof batchJson>;
