import { useMemo, useState } from 'react';
import { Link } from 'wouter';
import type { Node } from '../../api/schemas.ts';
import { dateTime, gpus, timeLeft } from '../../parts/format.ts';
import { NodeState } from '../../parts/node-state.tsx';
import { useLive, useMe } from '../../parts/session.tsx';
import { useMinute } from '../../parts/use-minute.ts';
import { t } from '../../texts/index.ts';
import { Empty, Loading } from '../../ui/feedback.tsx';
import { Field, Input } from '../../ui/field.tsx';
import { Page, Section } from '../../ui/page.tsx';
import { type Column, DataTable } from '../../ui/table.tsx';
import { ClusterMap } from './cluster-map.tsx';
import { NodeHistory } from './node-history.tsx';

const texts = t.nodes;

export function NodeList() {
  const me = useMe();
  const live = useLive();
  const [filter, setFilter] = useState('');
  const now = useMinute();
  const all = useMemo(
    () => [...live.nodes.values()].filter((node) => node.state !== 'LEFT' && matches(node, filter)),
    [live, filter],
  );
  const columns = useMemo(() => columnsOf(now), [now]);
  const mine = [...live.nodes.values()].filter(
    (node) => node.state !== 'LEFT' && (me.role === 'operator' || node.provider === me.provider),
  ).length;
  const left = [...live.nodes.values()].filter(({ state }) => state === 'LEFT').length;
  return (
    <Page title={t.pages.nodes} about={texts.about}>
      <ClusterMap nodes={all} choose={setFilter} />
      <div className="flex flex-wrap items-end justify-between gap-4">
        <Field label={texts.find} className="w-full max-w-sm">
          {(id) => (
            <Input
              id={id}
              type="search"
              placeholder={texts.findHint}
              value={filter}
              onChange={(event) => setFilter(event.currentTarget.value)}
            />
          )}
        </Field>
        <p className="pb-2 text-muted text-sm">
          {t.amounts.nodes(all.length)}
          {left > 0 && texts.left(left)}
        </p>
      </div>
      {all.length === 0 && live.connection === 'connecting' ? (
        <Loading />
      ) : all.length === 0 ? (
        <Empty>{texts.none}</Empty>
      ) : (
        <DataTable label={t.pages.nodes} rows={all} columns={columns} rowId={({ session }) => session} />
      )}
      <Section title={texts.history.title}>
        <NodeHistory moves={live.moves} here={mine} />
      </Section>
    </Page>
  );
}

function matches(node: Node, filter: string): boolean {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const text = [
    node.session,
    node.provider,
    node.cluster,
    node.region ?? '',
    ...node.models.map(({ id }) => id),
    gpus(node.hardware.gpus),
  ]
    .join(' ')
    .toLowerCase();
  return words.every((word) => text.includes(word));
}

function columnsOf(now: number): Column<Node>[] {
  const { columns } = texts;
  return [
    {
      id: 'id',
      header: columns.id,
      cell: ({ session }) => (
        <Link
          href={`/nodes/${session}`}
          className="font-mono text-accent underline-offset-2 hover:underline"
          aria-label={texts.details(session.slice(0, 8))}
        >
          {session.slice(0, 8)}
        </Link>
      ),
    },
    { id: 'state', header: columns.state, value: ({ state }) => state, cell: (node) => <NodeState node={node} /> },
    { id: 'provider', header: columns.provider, value: ({ provider }) => provider, cell: ({ provider }) => provider },
    { id: 'cluster', header: columns.cluster, value: ({ cluster }) => cluster, cell: ({ cluster }) => cluster },
    { id: 'hardware', header: columns.hardware, cell: ({ hardware }) => gpus(hardware.gpus) },
    { id: 'models', header: columns.models, cell: ({ models }) => models.map(({ id }) => id).join(', ') || texts.idle },
    {
      id: 'ends',
      header: columns.ends,
      value: ({ job }) => job?.ends_at ?? '~',
      cell: ({ job }) => timeLeft(job?.ends_at, now),
    },
    {
      id: 'changed',
      header: columns.changed,
      nowrap: true,
      value: ({ updated_at }) => updated_at,
      cell: ({ updated_at }) => dateTime(updated_at),
    },
  ];
}
