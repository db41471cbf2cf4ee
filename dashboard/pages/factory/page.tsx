import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { gateway } from '../../api/client.ts';
import type { FactoryStatus } from '../../api/resources.ts';
import { dateTime } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Empty, Show, Tag } from '../../ui/feedback.tsx';
import { Page, Section } from '../../ui/page.tsx';
import { Plot } from '../../ui/plot.tsx';
import { ClusterTable, DecisionTable, JobTable, ModelTable } from './factory-tables.tsx';
import { Timelines } from './workload-plots.tsx';

const REFETCH_MS = 5_000;
const texts = t.factory;

/** Autoscalers, as they last reported. Their behavior is set in their own configuration: nothing is changed here. */
export default function FactoryPage() {
  const factories = useQuery({
    queryKey: ['factories'],
    queryFn: async ({ signal }) => (await gateway.GET('/admin/factory', { signal })).data?.data ?? [],
    refetchInterval: REFETCH_MS,
  });
  return (
    <Page title={t.pages.factory} about={texts.about}>
      <Timelines />
      <Show of={factories}>
        {(all) =>
          all.length === 0 ? (
            <Empty>{texts.none}</Empty>
          ) : (
            all.map((one) => <OneFactory key={`${one.token_id} ${one.id}`} factory={one} />)
          )
        }
      </Show>
    </Page>
  );
}

function OneFactory({ factory }: { factory: FactoryStatus }) {
  const { id, provider, silent, reported_at: reportedAt } = factory;
  return (
    <article className="flex flex-col gap-6" aria-label={id}>
      <h2 className="flex flex-wrap items-center gap-3 text-xl">
        {id} <span className="font-normal text-base text-muted">{texts.of(provider)}</span>
        {silent ? <Tag kind="bad">{texts.silent}</Tag> : <Tag kind="good">{texts.reported}</Tag>}
      </h2>
      {silent && <p className="text-bad">{texts.silentSince(dateTime(reportedAt))}</p>}
      <FactoryDay day={factory.day} />
      <Section title={texts.models}>
        <ModelTable of={factory} />
      </Section>
      <Section title={texts.jobs}>
        <JobTable of={factory} />
      </Section>
      <Section title={texts.clusters}>
        <ClusterTable of={factory} />
      </Section>
      <Section title={texts.decisions}>
        <DecisionTable of={factory} />
      </Section>
    </article>
  );
}

/** GPUs of the autoscaler's jobs over a day, and the requests that waited for them. */
function FactoryDay({ day }: { day: FactoryStatus['day'] }) {
  const { times, gpus, requests } = useMemo(() => {
    const of = (name: 'running' | 'ready' | 'pending' | 'idle') => ({
      label: texts.lines[name],
      values: day.map((point) => point[name] ?? null),
    });
    const waited = { label: texts.requests, values: day.map(({ waiting }) => waiting) };
    return {
      times: day.map(({ at }) => Date.parse(at) / 1000),
      gpus: [of('running'), of('ready'), of('pending'), of('idle')],
      requests: [waited],
    };
  }, [day]);
  if (day.length === 0) return <p className="text-muted">{texts.noDay}</p>;
  const common = { about: texts.dayAbout, times, stepped: true };
  return (
    <div className="grid gap-4 lg:grid-cols-2">
      <Plot {...common} title={texts.gpusTitle} lines={gpus} height={200} />
      <Plot {...common} title={texts.requestsTitle} lines={requests} height={200} />
    </div>
  );
}
