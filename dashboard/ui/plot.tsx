import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

export interface Line {
  label: string;
  values: readonly number[];
}

const COLOURS = ['--plot-1', '--plot-2', '--plot-3'];

/** Steps of an axis: half a node, or half a token, is nothing. */
const WHOLE = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();

interface PlotProps {
  title: string;
  /** Of what the lines go over, for who does not see them: the table beside it says the same. */
  about: string;
  /** Seconds since 1970, of each value. */
  times: readonly number[];
  lines: readonly Line[];
  /** The part of time that is shown, of what there is. */
  range?: (from: number, to: number) => [number, number];
  /** A value holds until the next one; else lines go straight from one to the next. */
  stepped?: boolean;
  /** Pixels. */
  height?: number;
}

function atLeastAnHour(from: number, to: number): [number, number] {
  return from < to ? [from, to] : [to - 3600, to];
}

/** Lines over time. Drawn anew when `times` or `lines` are others: keep them while they are the same. */
export function Plot({ title, about, times, lines, range, stepped = false, height = 240 }: PlotProps) {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const div = ref.current;
    if (div === null) return;
    const style = getComputedStyle(div);
    const ink = style.getPropertyValue('--ink');
    const grid = { stroke: style.getPropertyValue('--line'), width: 1 };
    const axis = { stroke: ink, grid, ticks: grid };
    const paths = stepped ? uPlot.paths.stepped?.({ align: 1 }) : undefined;
    const plot = new uPlot(
      {
        width: div.clientWidth || 600,
        height,
        legend: { show: false },
        cursor: { show: false },
        scales: {
          // Of a single value uPlot itself makes years.
          x: { range: () => (range ?? atLeastAnHour)(times[0] ?? 0, times.at(-1) ?? 0) },
          y: { range: (_plot, _min, max) => [0, Math.max(1, max * 1.1)] },
        },
        axes: [axis, { ...axis, size: 70, incrs: WHOLE }],
        series: [
          {},
          ...lines.map((line, n) => ({
            label: line.label,
            stroke: style.getPropertyValue(COLOURS[n % COLOURS.length] ?? '--ink'),
            width: 2,
            points: { show: times.length < 3 },
            ...(paths === undefined ? {} : { paths }),
          })),
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
  }, [times, lines]);
  return (
    <figure>
      <figcaption>
        {title}:{' '}
        {lines.map((line, n) => (
          <span key={line.label} class={`key k${n + 1}`}>
            {line.label}
          </span>
        ))}
      </figcaption>
      <div ref={ref} role="img" aria-label={`${title}, ${about}; the table has the numbers`} />
    </figure>
  );
}
