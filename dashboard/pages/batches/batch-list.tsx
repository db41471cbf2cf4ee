import { useMemo, useState } from 'react';
import { Link } from 'wouter';
import { type Batch, isOver, readBatches } from '../../api/batches.ts';
import { useResources } from '../../api/resources.ts';
import { dateTimeOf } from '../../parts/format.ts';
import { ResourceList } from '../../parts/resource-list.tsx';
import { t } from '../../texts/index.ts';
import { Section } from '../../ui/page.tsx';
import { Segments } from '../../ui/segmented-control.tsx';
import { type Column, Nowrap } from '../../ui/table.tsx';
import { answeredOf, answeredWords, BatchState, batchName, overSince } from './batch-state.tsx';
import { useOwnerName } from './use-owner-name.ts';

const texts = t.batches;

/** Refetch intervals while a batch runs, and while none does. */
const OPEN_MS = 3_000;
const IDLE_MS = 20_000;

const VIEWS = ['mine', 'everybody'] as const;

export function BatchList({ isOperator }: { isOperator: boolean }) {
  const [view, setView] = useState<(typeof VIEWS)[number]>(isOperator ? 'everybody' : 'mine');
  const ofAll = view === 'everybody';
  const ownerName = useOwnerName(isOperator);
  const batches = useResources(
    `batches of ${view}`,
    (query, signal) => readBatches(query, ofAll, signal),
    (rows) => (rows.every(isOver) ? IDLE_MS : OPEN_MS),
  );
  const columns = useMemo(() => columnsOf(ofAll ? ownerName : undefined), [ofAll, ownerName]);
  const choice = (
    <Segments
      label={texts.whose}
      value={view}
      options={VIEWS.map((value) => ({ value, label: texts[value] }))}
      choose={setView}
    />
  );
  return (
    <Section title={texts.list} actions={isOperator && choice}>
      <ResourceList
        label={texts.list}
        of={batches}
        columns={columns}
        none={ofAll ? texts.noneOfAll : texts.none}
        words={wordsOf}
        rowId={({ id }) => id}
      />
    </Section>
  );
}

const wordsOf = (batch: Batch) => `${batchName(batch)} ${batch.id} ${batch.model ?? ''} ${texts.states[batch.status]}`;

function columnsOf(ownerName: ((owner: string | undefined) => string) | undefined): Column<Batch>[] {
  const { columns } = texts;
  return [
    {
      id: 'name',
      header: columns.name,
      value: batchName,
      cell: (batch) => (
        <Link href={`/batches/${batch.id}`} className="font-medium text-accent hover:underline">
          {batchName(batch)}
        </Link>
      ),
    },
    ...(ownerName === undefined
      ? []
      : [
          {
            id: 'owner',
            header: columns.owner,
            cell: ({ x_otela }: Batch) => <Nowrap>{ownerName(x_otela.owner)}</Nowrap>,
          },
        ]),
    { id: 'state', header: columns.state, value: ({ status }) => status, cell: (batch) => <BatchState of={batch} /> },
    { id: 'done', header: columns.done, value: answeredOf, cell: answeredWords, numeric: true },
    {
      id: 'model',
      header: columns.model,
      value: ({ model }) => model ?? '',
      cell: ({ model }) => model ?? t.common.none,
    },
    {
      id: 'created',
      header: columns.created,
      value: ({ created_at }) => created_at,
      cell: ({ created_at }) => <Nowrap>{dateTimeOf(created_at)}</Nowrap>,
    },
    {
      id: 'end',
      header: columns.end,
      value: (batch) => overSince(batch) ?? batch.x_otela.estimated_end ?? Number.MAX_SAFE_INTEGER,
      cell: (batch) => <Nowrap>{dateTimeOf(overSince(batch) ?? batch.x_otela.estimated_end)}</Nowrap>,
    },
  ];
}
