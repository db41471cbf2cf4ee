import { useQuery } from '@tanstack/react-query';
import { type ReactElement, useEffect, useMemo, useRef } from 'react';
import * as z from 'zod/mini';
import { readGateway } from '../../api/client.ts';
import { listOf } from '../../api/schemas.ts';
import { exactTime } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Empty, Show, Tag } from '../../ui/feedback.tsx';
import { Plot } from '../../ui/plot.tsx';
import { type Column, DataTable } from '../../ui/table.tsx';
import { because } from './node-facts.tsx';

/** Events that are requested: the plot shows all, the table the newest. */
const EVENTS_MAX = 500;
const ROWS = 20;
/** Minimum interval of refetches, because hundreds of nodes may join or end at the same time. */
const REFETCH_MS = 1_000;

const eventSchema = z.object({
  id: z.number(),
  at: z.string(),
  session: z.string(),
  node: z.nullable(z.string()),
  provider: z.string(),
  cluster: z.string(),
  event: z.enum(['join', 'serving', 'down', 'suspected', 'trusted', 'left']),
  reason: z.nullable(z.string()),
});
type NodeEvent = z.infer<typeof eventSchema>;
const historySchema = listOf(eventSchema);

const { history: texts, states } = t.nodes;

interface NodeHistoryProps {
  /** A change of this number refetches the history. */
  moves: number;
  /** The current number of nodes, from which the plot counts back. Given only for the history of all nodes. */
  here?: number;
  /** Limits the history to one node. */
  session?: string;
}

/** Joins and losses, including those before the page was opened. */
export function NodeHistory({ moves, here, session }: NodeHistoryProps) {
  const history = useQuery({
    queryKey: ['node-history', session],
    queryFn: ({ signal }) => {
      const one = session === undefined ? '' : `&session=${session}`;
      return readGateway(historySchema, `/admin/nodes/history?limit=${EVENTS_MAX}${one}`, signal);
    },
    staleTime: 0,
  });
  useAfter(moves, history.refetch);
  return (
    <Show of={history}>
      {({ data }) =>
        data.length === 0 ? (
          <Empty>{texts.none}</Empty>
        ) : (
          <Told events={data} here={here} columns={session === undefined ? COLUMNS : ONE} />
        )
      }
    </Show>
  );
}

/** Calls `again` a moment after `moves` changed, once for all changes of that moment. */
function useAfter(moves: number, again: () => unknown): void {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const seen = useRef(moves);
  useEffect(() => {
    if (seen.current === moves) return;
    seen.current = moves;
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      again();
    }, REFETCH_MS);
  }, [moves, again]);
  useEffect(
    () => () => {
      clearTimeout(timer.current);
      timer.current = undefined;
    },
    [],
  );
}

interface ToldProps {
  events: readonly NodeEvent[];
  here: number | undefined;
  columns: readonly Column<NodeEvent>[];
}

function Told({ events, here, columns }: ToldProps) {
  return (
    <>
      {here !== undefined && <OverTime events={events} here={here} />}
      <DataTable label={texts.title} rows={events} columns={columns} rowId={({ id }) => String(id)} pageSize={ROWS} />
    </>
  );
}

function OverTime({ events, here }: { events: readonly NodeEvent[]; here: number }) {
  const { times, lines } = useMemo(() => nodesOverTime(events, here), [events, here]);
  const about = texts.events(events.length);
  return <Plot title={texts.overTime} about={about} times={times} lines={lines} stepped height={160} />;
}

const COLUMNS: readonly Column<NodeEvent>[] = [
  { id: 'when', header: texts.columns.when, cell: ({ at }) => <time dateTime={at}>{exactTime(at)}</time> },
  { id: 'what', header: texts.columns.what, cell: ({ event }) => TAGS[event] },
  { id: 'node', header: texts.columns.node, cell: ({ session }) => <code>{session.slice(0, 8)}</code> },
  { id: 'machine', header: texts.columns.machine, cell: ({ node }) => node ?? t.common.none },
  { id: 'provider', header: texts.columns.provider, cell: ({ provider }) => provider },
  { id: 'cluster', header: texts.columns.cluster, cell: ({ cluster }) => cluster },
  {
    id: 'why',
    header: texts.columns.why,
    cell: ({ event, reason }) => (event === 'left' ? because(reason) : (reason ?? '')),
  },
];

/** Columns of one node's history, without those that the node's page already shows. */
const ONE = COLUMNS.filter(({ id }) => ['when', 'what', 'machine', 'why'].includes(id));

const TAGS: Readonly<Record<NodeEvent['event'], ReactElement>> = {
  join: <Tag kind="wait">{states.joined}</Tag>,
  serving: <Tag kind="good">{states.serving}</Tag>,
  down: <Tag kind="plain">{states.down}</Tag>,
  suspected: <Tag kind="bad">{states.silent}</Tag>,
  trusted: <Tag kind="good">{states.heardAgain}</Tag>,
  left: <Tag kind="plain">{states.left}</Tag>,
};

/** The number of nodes after each join and loss, counted back from `here`. `events`: the newest first. */
function nodesOverTime(
  events: readonly NodeEvent[],
  here: number,
): { times: number[]; lines: { label: string; values: number[] }[] } {
  const times = [Date.now() / 1000];
  const values = [here];
  let count = here;
  for (const { event, at } of events) {
    if (event !== 'join' && event !== 'left') continue;
    times.push(Date.parse(at) / 1000);
    values.push(count);
    count = Math.max(0, count + (event === 'join' ? -1 : 1));
  }
  return { times: times.reverse(), lines: [{ label: texts.line, values: values.reverse() }] };
}
