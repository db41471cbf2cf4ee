import type { Batch } from '../../api/batches.ts';
import { count } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Tag } from '../../ui/feedback.tsx';

const KINDS: Readonly<Record<Batch['status'], 'good' | 'bad' | 'wait' | 'plain' | 'accent'>> = {
  validating: 'wait',
  failed: 'bad',
  in_progress: 'accent',
  finalizing: 'accent',
  completed: 'good',
  expired: 'bad',
  cancelling: 'wait',
  cancelled: 'plain',
};

const texts = t.batches;

export function BatchState({ of: { status, x_otela: ours } }: { of: Batch }) {
  if (ours.paused && status === 'in_progress') return <Tag kind="wait">{texts.paused}</Tag>;
  return <Tag kind={KINDS[status]}>{texts.states[status]}</Tag>;
}

/** The name that its creator gave, otherwise its id. */
export const batchName = ({ id, metadata }: Batch): string => metadata?.name ?? id;

export const answeredOf = ({ request_counts: { completed, failed } }: Batch): number => completed + failed;

export function answeredWords(batch: Batch): string {
  const { total } = batch.request_counts;
  return total === 0 ? t.common.none : texts.of(count(answeredOf(batch)), count(total));
}

/** When the batch reached its final state, in Unix seconds; null: it has not. */
export const overSince = (batch: Batch): number | null =>
  batch.completed_at ?? batch.failed_at ?? batch.expired_at ?? batch.cancelled_at ?? null;
