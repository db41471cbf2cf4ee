import clsx from 'clsx';
import { useEffect, useRef } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { axisTimes } from './axis-times.ts';
import { useTheme } from './theme.ts';
import { useMedia } from './use-media.ts';

export interface Line {
  label: string;
  /** One value for each time of the plot; null: not known at that time. */
  values: readonly (number | null)[];
}

const COLORS = ['text-plot-1', 'text-plot-2', 'text-plot-3', 'text-plot-4'] as const;

/** Steps of an axis: whole numbers only, because half a node or half a token does not exist. */
const WHOLE = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();

interface PlotProps {
  title: string;
  /** A summary of the data for screen readers; the table next to the plot has the same data. */
  about: string;
  /** The time of each value, in seconds since 1970. */
  times: readonly number[];
  lines: readonly Line[];
  /** Maps the data's time range to the shown range. */
  range?: (from: number, to: number) => [number, number];
  /** Upper end of the vertical axis; absent: the largest value. */
  max?: number;
  /** True: a value holds until the next one. False: straight lines connect the values. */
  stepped?: boolean;
  /** Height of the plot, in pixels. */
  height?: number;
}

function atLeastAnHour(from: number, to: number): [number, number] {
  return from < to ? [from, to] : [to - 3600, to];
}

/** Lines over time. The plot is rebuilt if `times` or `lines` are new objects, so keep them if they do not change. */
export function Plot({ title, about, times, lines, range, max: highest, stepped = false, height = 240 }: PlotProps) {
  const ref = useRef<HTMLDivElement>(null);
  const figure = useRef<HTMLElement>(null);
  const theme = useTheme();
  const dark = useMedia('(prefers-color-scheme: dark)');
  // biome-ignore lint/correctness/useExhaustiveDependencies: colors are read again when the theme changes; the rest stays
  useEffect(() => {
    const div = ref.current;
    const keys = [...(figure.current?.querySelectorAll('[data-color]') ?? [])];
    if (div === null) return;
    // A canvas cannot use CSS variables, so the colors are read from the computed style.
    const colorOf = (element: Element) => getComputedStyle(element).color;
    const { color: ink, borderTopColor } = getComputedStyle(div);
    const grid = { stroke: borderTopColor, width: 1 };
    const axis = { stroke: ink, grid, ticks: grid, font: '11px "Inter Variable", sans-serif' };
    const paths = stepped ? uPlot.paths.stepped?.({ align: 1 }) : undefined;
    const plot = new uPlot(
      {
        width: div.clientWidth || 600,
        height,
        legend: { show: false },
        cursor: { show: false },
        scales: {
          // If all values have one time, uPlot itself would show a range of years.
          x: { range: () => (range ?? atLeastAnHour)(times[0] ?? 0, times.at(-1) ?? 0) },
          y: { range: (_plot, _min, max) => [0, highest ?? Math.max(1, max * 1.1)] },
        },
        axes: [
          { ...axis, values: (_plot, splits, _axis, _space, step) => axisTimes(splits, step) },
          { ...axis, size: 64, incrs: WHOLE },
        ],
        series: [
          {},
          ...lines.map((line, n) => {
            const key = keys[n];
            return {
              label: line.label,
              stroke: key === undefined ? ink : colorOf(key),
              width: 2,
              points: { show: times.length < 3 },
              ...(paths === undefined ? {} : { paths }),
            };
          }),
        ],
      },
      [[...times], ...lines.map((line) => [...line.values])],
      div,
    );
    const observer = new ResizeObserver(() => plot.setSize({ width: div.clientWidth, height }));
    observer.observe(div);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [times, lines, theme, dark]);
  return (
    <figure ref={figure} className="rounded-lg border border-line bg-surface p-4">
      <figcaption className="mb-3 flex flex-wrap gap-x-4 gap-y-1 text-sm">
        <span className="font-medium">{title}</span>
        {lines.map((line, n) => (
          <span key={line.label} className="inline-flex items-center gap-1.5 text-muted">
            <span
              data-color
              className={clsx('size-2.5 rounded-full bg-current', COLORS[n % COLORS.length])}
              aria-hidden
            />
            {line.label}
          </span>
        ))}
      </figcaption>
      <div ref={ref} role="img" aria-label={`${title}, ${about}`} className="overflow-hidden border-line text-muted" />
    </figure>
  );
}
