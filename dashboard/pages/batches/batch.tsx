import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { type Batch, changeBatch, isOver, readBatch } from '../../api/batches.ts';
import { DetailTitle } from '../../parts/detail-title.tsx';
import { count } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Confirm } from '../../ui/dialog.tsx';
import { Failure, Show } from '../../ui/feedback.tsx';
import { Meter } from '../../ui/meter.tsx';
import { Card, Page } from '../../ui/page.tsx';
import { useAction } from '../../ui/use-action.ts';
import { BatchCourse } from './batch-course.tsx';
import { BatchErrors } from './batch-errors.tsx';
import { BatchFacts } from './batch-facts.tsx';
import { BatchFiles } from './batch-files.tsx';
import { answeredOf, answeredWords, BatchState, batchName } from './batch-state.tsx';

const texts = t.batches.one;
const REFETCH_MS = 2_000;

/** One batch, refetched until it has ended. */
export function BatchPage({ id }: { id: string }) {
  const batch = useQuery({
    queryKey: ['batch', id],
    queryFn: ({ signal }) => readBatch(id, signal),
    refetchInterval: ({ state: { data } }) => (data !== undefined && isOver(data) ? false : REFETCH_MS),
  });
  const { data } = batch;
  return (
    <Page
      title={
        <DetailTitle href="/batches" back={texts.back} state={data && <BatchState of={data} />}>
          <span className="[overflow-wrap:anywhere]">{data === undefined ? id : batchName(data)}</span>
        </DetailTitle>
      }
      actions={data !== undefined && <Actions batch={data} />}
    >
      <Show of={batch}>{(one) => <Shown batch={one} />}</Show>
    </Page>
  );
}

function Shown({ batch }: { batch: Batch }) {
  const { total, failed } = batch.request_counts;
  return (
    <>
      {total > 0 && (
        <Card>
          <Meter
            label={texts.answered}
            value={answeredOf(batch)}
            max={total}
            text={answeredWords(batch)}
            plain
            {...(failed > 0 && { note: texts.failed(count(failed)) })}
          />
        </Card>
      )}
      <BatchErrors batch={batch} />
      <Card>
        <BatchFacts batch={batch} />
      </Card>
      <BatchCourse batch={batch} />
      <BatchFiles batch={batch} />
    </>
  );
}

function Actions({ batch }: { batch: Batch }) {
  const queries = useQueryClient();
  const [cancelling, setCancelling] = useState(false);
  const show = (next: Batch) => queries.setQueryData(['batch', batch.id], next);
  const change = useAction(show);
  const { status, x_otela: ours } = batch;
  const verb = ours.paused ? 'resume' : 'pause';
  return (
    <>
      {change.error !== undefined && <Failure error={change.error} />}
      {status === 'in_progress' && (
        <Button disabled={change.busy} onClick={() => change.act(changeBatch(batch.id, verb))}>
          {texts[verb]}
        </Button>
      )}
      {(status === 'in_progress' || status === 'validating') && (
        <Button kind="danger" onClick={() => setCancelling(true)}>
          {texts.cancel}
        </Button>
      )}
      {cancelling && (
        <Confirm
          title={texts.cancelTitle}
          action={texts.cancel}
          act={() => changeBatch(batch.id, 'cancel').then(show)}
          close={() => setCancelling(false)}
        >
          {texts.cancelFollows}
        </Confirm>
      )}
    </>
  );
}
