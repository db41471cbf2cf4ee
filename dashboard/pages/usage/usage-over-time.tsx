import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { gateway } from '../../api/client.ts';
import { t } from '../../texts/index.ts';
import { Show } from '../../ui/feedback.tsx';
import { type Line, Plot } from '../../ui/plot.tsx';
import { DAYS, nameOf, type Range, totalsBy } from './usage-query.ts';

const texts = t.usage;
const DAY_S = 86_400;
const HOURS = 24;

interface Point {
  /** Seconds since 1970. */
  at: number;
  read: number;
  written: number;
}

interface OverTimeProps {
  range: Range;
  filter: string;
  /** The last 24 hours by hour. The gateway reports this only for the user's own usage. */
  hourly: boolean;
}

/** Tokens by day or by hour. */
export function OverTime({ range, filter, hourly }: OverTimeProps) {
  const points = useQuery({
    queryKey: ['usage-over-time', range, filter, hourly],
    queryFn: async ({ signal }) => ({
      hourly,
      points: await (hourly ? hours(signal) : days(range, filter, signal)),
    }),
    placeholderData: keepPreviousData,
  });
  return <Show of={points}>{(found) => <Tokens {...found} range={range} />}</Show>;
}

async function hours(signal: AbortSignal): Promise<Point[]> {
  const { data } = await gateway.GET('/admin/me/hours', { params: { query: { hours: HOURS } }, signal });
  return (data?.data ?? []).map(({ hour, prompt_tokens: read, completion_tokens: written }) => ({
    at: Date.parse(hour) / 1000,
    read,
    written,
  }));
}

async function days(range: Range, filter: string, signal: AbortSignal): Promise<Point[]> {
  const all = await totalsBy('day', range, filter, signal);
  const points = all.map((one) => ({
    at: Date.parse(nameOf(one, 'day')) / 1000,
    read: one.prompt_tokens ?? 0,
    written: one.completion_tokens ?? 0,
  }));
  return points.sort((a, b) => a.at - b.at);
}

interface TokensProps {
  points: readonly Point[];
  range: Range;
  hourly: boolean;
}

function Tokens({ points, range, hourly }: TokensProps) {
  const [times, lines] = useMemo((): [number[], Line[]] => {
    const read = { label: texts.read, values: points.map((one) => one.read) };
    const written = { label: texts.written, values: points.map((one) => one.written) };
    return [points.map(({ at }) => at), [read, written]];
  }, [points]);
  if (points.length === 0) return null;
  return (
    <Plot
      // Another range must make a new plot, not change the data of the old one.
      key={`${range}${hourly}`}
      title={texts.tokens}
      about={hourly ? texts.hours(times.length) : t.amounts.days(times.length)}
      times={times}
      lines={lines}
      stepped={hourly}
      range={hourly ? (from, to) => [from, to + 3_600] : (_, to) => [to - (DAYS[range] - 1) * DAY_S, to + DAY_S / 2]}
    />
  );
}
