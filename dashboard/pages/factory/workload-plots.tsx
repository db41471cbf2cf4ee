import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { gateway } from '../../api/client.ts';
import type { paths } from '../../api/contract.ts';
import { exactTime } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Section } from '../../ui/page.tsx';
import { Plot } from '../../ui/plot.tsx';
import { type Column, DataTable, Nowrap } from '../../ui/table.tsx';

type Timeline = paths['/admin/timeline']['get']['responses'][200]['content']['application/json']['data'][number];

const REFETCH_MS = 10_000;
/** Maximum number of lines in a plot, which has four colors for lines. */
const LINES_MAX = 4;
const CHANGES_SHOWN = 20;
const texts = t.timeline;

/** Models with a deployment that follows a forecast; nothing if no planner reports any. */
export function Timelines() {
  const timelines = useQuery({
    queryKey: ['timeline'],
    queryFn: async ({ signal }) => (await gateway.GET('/admin/timeline', { signal })).data?.data ?? [],
    refetchInterval: REFETCH_MS,
  });
  const all = timelines.data ?? [];
  if (all.length === 0) return null;
  return (
    <Section title={texts.title}>
      <p className="text-muted">{texts.about}</p>
      {all.map((one) => (
        <OneTimeline key={one.model} timeline={one} />
      ))}
    </Section>
  );
}

function OneTimeline({ timeline }: { timeline: Timeline }) {
  const { model, kinds, slots } = timeline;
  const plots = useMemo(() => plotsOf(timeline), [timeline]);
  const common = { about: texts.plotAbout, times: plots.times, height: 180 };
  const changed = slots.filter(({ changes }) => changes.length > 0).slice(-CHANGES_SHOWN);
  return (
    <article className="flex flex-col gap-4" aria-label={model}>
      <h3 className="text-lg">{model}</h3>
      <p className="text-muted">{slots.at(-1)?.why}</p>
      <div className="grid gap-4 lg:grid-cols-2">
        {kinds.map((kind, k) => (
          <Plot key={kind} {...common} title={texts.demand(kind)} lines={plots.demand[k] ?? []} />
        ))}
        <Plot {...common} title={texts.replicas} lines={plots.replicas} stepped />
        <Plot {...common} title={texts.latency} lines={plots.latency} />
      </div>
      {changed.length === 0 ? (
        <p className="text-muted">{texts.noSwitch}</p>
      ) : (
        <DataTable label={texts.switches} rows={changed.toReversed()} columns={COLUMNS} rowId={({ at }) => at} />
      )}
    </article>
  );
}

type Slot = Timeline['slots'][number];

const COLUMNS: readonly Column<Slot>[] = [
  {
    id: 'when',
    header: texts.columns.when,
    value: ({ at }) => at,
    cell: ({ at }) => <Nowrap>{exactTime(at)}</Nowrap>,
  },
  { id: 'why', header: texts.columns.why, value: ({ why }) => why, cell: ({ why }) => why },
  {
    id: 'what',
    header: texts.columns.what,
    value: ({ changes }) => changes.length,
    cell: ({ changes }) => changes.join('; '),
  },
];

/** A forecast is plotted at the slot that it predicts. The real demand of this slot is counted later. */
function plotsOf({ kinds, slots }: Timeline) {
  const secondsOf = (at: string) => Date.parse(at) / 1000;
  const counted = new Map(slots.map((slot) => [secondsOf(slot.at), slot]));
  const expected = new Map(slots.map((slot) => [secondsOf(slot.expected.at), slot.expected]));
  const times = [...new Set([...counted.keys(), ...expected.keys()])].sort((a, b) => a - b);
  const demand = kinds.map((_, k) => [
    { label: texts.lines.counted, values: times.map((at) => counted.get(at)?.requests[k] ?? null) },
    { label: texts.lines.expected, values: times.map((at) => expected.get(at)?.mean[k] ?? null) },
    { label: texts.lines.low, values: times.map((at) => expected.get(at)?.low[k] ?? null) },
    { label: texts.lines.high, values: times.map((at) => expected.get(at)?.high[k] ?? null) },
  ]);
  const spreads = [...new Set(slots.flatMap(({ replicas }) => Object.keys(replicas)))].sort().slice(0, LINES_MAX);
  const replicas = spreads.map((label) => ({
    label,
    values: times.map((at) => {
      const slot = counted.get(at);
      return slot === undefined ? null : (slot.replicas[label] ?? 0);
    }),
  }));
  const latency = [
    { label: texts.p50, values: times.map((at) => counted.get(at)?.p50_ms ?? null) },
    { label: texts.p99, values: times.map((at) => counted.get(at)?.p99_ms ?? null) },
  ];
  return { times, demand, replicas, latency };
}
