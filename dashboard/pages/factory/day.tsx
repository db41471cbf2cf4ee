import { useMemo } from 'react';
import type { FactoryStatus } from '../../api/resources.ts';
import { t } from '../../texts/index.ts';
import { Plot } from '../../ui/plot.tsx';

const texts = t.factory;

/** GPUs of the autoscaler's jobs over a day, and the requests that waited for them. */
export function FactoryDay({ day }: { day: FactoryStatus['day'] }) {
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
