import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { type Batch, type BatchSample, isOver, readBatchSeries } from '../../api/batches.ts';
import { t } from '../../texts/index.ts';
import { type Line, Plot } from '../../ui/plot.tsx';

const texts = t.batches.one.course;
/** The gateway takes a sample each 5 s, or less often in a long batch. */
const REFETCH_MS = 10_000;
const SPAN_MIN_S = 60;
/** A line between fewer samples shows nothing. */
const SAMPLES_MIN = 2;

/** Plots of a batch over time. */
export function BatchCourse({ batch }: { batch: Batch }) {
  const isEnded = isOver(batch);
  const { data } = useQuery({
    // The last sample is taken when the batch ends.
    queryKey: ['batch-series', batch.id, isEnded],
    queryFn: ({ signal }) => readBatchSeries(batch.id, signal),
    refetchInterval: isEnded ? false : REFETCH_MS,
  });
  return data === undefined || data.length < SAMPLES_MIN ? null : <Plots samples={data} />;
}

function Plots({ samples }: { samples: readonly BatchSample[] }) {
  const times = useMemo(() => samples.map(({ at }) => at), [samples]);
  const lines = useMemo(() => {
    const of = (label: string, pick: (sample: BatchSample) => number): Line => ({ label, values: samples.map(pick) });
    return {
      rate: [{ label: texts.rate, values: ratesOf(samples) }],
      nodes: [of(texts.nodes, ({ nodes }) => nodes)],
      lost: [of(texts.lost, ({ requeued }) => requeued)],
      warm: [of(texts.all, ({ leases }) => leases), of(texts.warm, ({ warm_leases: warm }) => warm)],
    };
  }, [samples]);
  const common = { about: texts.about, times, range, height: 150 };
  const isFunction = samples.some(({ warm_leases: warm }) => warm > 0);
  return (
    <section aria-label={texts.title} className="grid gap-4 lg:grid-cols-2">
      <Plot {...common} title={texts.rateTitle} lines={lines.rate} />
      <Plot {...common} title={texts.nodesTitle} lines={lines.nodes} stepped />
      <Plot {...common} title={texts.lostTitle} lines={lines.lost} stepped />
      {isFunction && <Plot {...common} title={texts.warmTitle} lines={lines.warm} stepped />}
    </section>
  );
}

/** Answered lines per second between a sample and the previous one. */
function ratesOf(samples: readonly BatchSample[]): (number | null)[] {
  return samples.map(({ at, completed, failed }, i) => {
    const before = samples[i - 1];
    if (before === undefined || at <= before.at) return null;
    return (completed + failed - before.completed - before.failed) / (at - before.at);
  });
}

function range(from: number, to: number): [number, number] {
  return [Math.min(from, to - SPAN_MIN_S), to];
}
