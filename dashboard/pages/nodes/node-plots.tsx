import { useMemo } from 'react';
import { t } from '../../texts/index.ts';
import { Empty } from '../../ui/feedback.tsx';
import { type Line, Plot } from '../../ui/plot.tsx';
import type { Sample } from './use-node-samples.ts';

const texts = t.nodes.node.plots;

/** Minimum span of a plot, in seconds: a line of two points shows nothing. */
const SPAN_MIN_S = 120;
const PERCENT = 100;

interface NodePlotsProps {
  samples: readonly Sample[];
  /** True if the node can report the utilization of its GPUs. */
  gpusTold: boolean;
}

export function NodePlots({ samples, gpusTold }: NodePlotsProps) {
  const times = useMemo(() => samples.map(({ at }) => at), [samples]);
  const lines = useMemo(() => {
    const of = (label: string, pick: (sample: Sample) => number | null): Line => ({
      label,
      values: samples.map(pick),
    });
    return {
      rate: [of(texts.rate, ({ tokensPerSecond }) => tokensPerSecond)],
      queue: [of(texts.running, ({ running }) => running), of(texts.waiting, ({ waiting }) => waiting)],
      cache: [of(texts.used, ({ kvCache }) => kvCache)],
      gpus: [of(texts.use, ({ gpuUse }) => gpuUse), of(texts.memory, ({ gpuMemory }) => gpuMemory)],
    };
  }, [samples]);
  const common = { about: texts.about, times, range, height: 150 };
  return (
    <>
      <p className="text-muted text-sm">{texts.since}</p>
      <div className="grid gap-4 lg:grid-cols-2">
        <Plot {...common} title={texts.rateTitle} lines={lines.rate} />
        <Plot {...common} title={texts.queueTitle} lines={lines.queue} />
        <Plot {...common} title={texts.cacheTitle} lines={lines.cache} max={PERCENT} />
        {gpusTold ? (
          <Plot {...common} title={texts.gpusTitle} lines={lines.gpus} max={PERCENT} />
        ) : (
          <Empty>{texts.gpusUnknown}</Empty>
        )}
      </div>
    </>
  );
}

function range(from: number, to: number): [number, number] {
  return [Math.min(from, to - SPAN_MIN_S), to];
}
