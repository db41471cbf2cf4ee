/** OpenAI's states of a batch. SDKs refuse any other value. */
export const BATCH_STATUSES = [
  'validating',
  'failed',
  'in_progress',
  'finalizing',
  'completed',
  'expired',
  'cancelling',
  'cancelled',
] as const;
export type BatchStatus = (typeof BATCH_STATUSES)[number];

const NEXT: Record<BatchStatus, readonly BatchStatus[]> = {
  validating: ['failed', 'in_progress', 'cancelling'],
  in_progress: ['finalizing', 'cancelling', 'expired'],
  finalizing: ['completed', 'cancelling', 'failed'],
  cancelling: ['cancelled'],
  failed: [],
  completed: [],
  expired: [],
  cancelled: [],
};

/** When the batch entered each state, in seconds since 1970; null until then. */
export interface BatchTimes {
  created_at: number;
  in_progress_at: number | null;
  expires_at: number;
  finalizing_at: number | null;
  completed_at: number | null;
  failed_at: number | null;
  expired_at: number | null;
  cancelling_at: number | null;
  cancelled_at: number | null;
}

/** The field that holds the time of each state. The time of `validating` is `created_at`. */
const TIME_OF: Record<Exclude<BatchStatus, 'validating'>, Exclude<keyof BatchTimes, 'created_at' | 'expires_at'>> = {
  in_progress: 'in_progress_at',
  finalizing: 'finalizing_at',
  completed: 'completed_at',
  failed: 'failed_at',
  expired: 'expired_at',
  cancelling: 'cancelling_at',
  cancelled: 'cancelled_at',
};

export function isTerminal(status: BatchStatus): boolean {
  return NEXT[status].length === 0;
}

/**
 * True if results are accepted in this state. While the batch is being cancelled, results of running lines are still
 * accepted.
 */
export function acceptsResults(status: BatchStatus): boolean {
  return status === 'in_progress' || status === 'cancelling';
}

/**
 * Changes a batch's state. The caller must read and write the state in one transaction.
 * @returns the state and times after the transition; undefined if it is not allowed
 */
export function transition(
  from: BatchStatus,
  to: Exclude<BatchStatus, 'validating'>,
  times: BatchTimes,
  nowS: number,
): { status: BatchStatus; times: BatchTimes } | undefined {
  if (!NEXT[from].includes(to)) return undefined;
  return { status: to, times: { ...times, [TIME_OF[to]]: Math.floor(nowS) } };
}

export function initialTimes(nowS: number, windowS: number): BatchTimes {
  const created_at = Math.floor(nowS);
  return {
    created_at,
    in_progress_at: null,
    expires_at: created_at + windowS,
    finalizing_at: null,
    completed_at: null,
    failed_at: null,
    expired_at: null,
    cancelling_at: null,
    cancelled_at: null,
  };
}
