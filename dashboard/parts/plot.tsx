import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

export interface Line {
  label: string;
  values: readonly number[];
}

const COLOURS = ['--plot-1', '--plot-2', '--plot-3'];

/** At least a month, so that a first day is not stretched over a year. Seconds since 1970. */
function lastDays(_plot: uPlot, from: number, to: number): [number, number] {
  return [Math.min(from, to - 29 * 86_400), to + 43_200];
}

/** Lines over days. `days` are dates, UTC. The table beside it says the same to those who do not see it. */
export function Plot({ title, days, lines }: { title: string; days: readonly string[]; lines: readonly Line[] }) {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const div = ref.current;
    if (div === null) return;
    const style = getComputedStyle(div);
    const ink = style.getPropertyValue('--ink');
    const grid = { stroke: style.getPropertyValue('--line'), width: 1 };
    const axis = { stroke: ink, grid, ticks: grid };
    const plot = new uPlot(
      {
        width: div.clientWidth || 600,
        height: 240,
        legend: { show: false },
        cursor: { show: false },
        scales: { x: { range: lastDays }, y: { range: (_u, _min, max) => [0, Math.max(1, max * 1.1)] } },
        axes: [axis, { ...axis, size: 70 }],
        series: [
          {},
          ...lines.map((line, n) => ({
            label: line.label,
            stroke: style.getPropertyValue(COLOURS[n % COLOURS.length] ?? '--ink'),
            width: 2,
            points: { show: days.length < 3 },
          })),
        ],
      },
      [days.map((day) => Date.parse(day) / 1000), ...lines.map((line) => [...line.values])],
      div,
    );
    const observer = new ResizeObserver(() => plot.setSize({ width: div.clientWidth, height: 240 }));
    observer.observe(div);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [days, lines]);
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
      <div ref={ref} role="img" aria-label={`${title}, ${days.length} days; the table has the numbers`} />
    </figure>
  );
}
