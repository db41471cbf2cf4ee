/** The 21 runs of the paper's Figure 4, and what Figures 4 and 5 draw of them. */
import { type Result, type Run, simulateWorkers } from '../../contexts/simulate.ts';
import { alone, BATCH_SIZES, DAILY_GPUS, evictedRun, opportunistic, PV6_GPUS, poolRun } from './runs.ts';

/** The runs by name, in the figure's order. pv2 is pv3 with 100 inferences a task, and has the same figures. */
export function allRuns(seed: number): [string, Run][] {
  return [
    ['pv0', alone(seed)],
    ['pv1', poolRun('naive', 100, seed)],
    ['pv2', poolRun('partial', 100, seed)],
    ...BATCH_SIZES.map((batch): [string, Run] => [`pv3_${batch}`, poolRun('partial', batch, seed)]),
    ...BATCH_SIZES.map((batch): [string, Run] => [`pv4_${batch}`, poolRun('pervasive', batch, seed)]),
    ['pv5p', evictedRun('partial', 1_000, seed, 'no')],
    ['pv5s', evictedRun('pervasive', 100, seed, 'no')],
    ['pv6', opportunistic(PV6_GPUS, seed)],
    // The paper names these by the hour of the day, and does not print how many GPUs each had.
    ...DAILY_GPUS.map((gpus): [string, Run] => [`daily ${gpus}`, opportunistic(gpus, seed)]),
  ];
}

export interface RunFigures {
  name: string;
  endS: number;
  /** Mean number of connected workers. */
  workers: number;
}

/** Figure 4: time and mean workers of each run. */
export function figure4(seed: number): RunFigures[] {
  return allRuns(seed).map(([name, run]) => {
    const { endS, averageWorkers } = simulateWorkers(run);
    return { name, endS, workers: averageWorkers };
  });
}

/** Bins of Figure 5 a decade. */
const BINS_A_DECADE = 8;

/**
 * Figure 5: share of tasks by execution time, as [seconds, percent]. The bins have equal width on a logarithmic axis,
 * because the times of one run span five decades.
 */
export function histogram({ tasksS }: Pick<Result, 'tasksS'>): [number, number][] {
  const counts = new Map<number, number>();
  for (const s of tasksS) {
    const bin = Math.floor(Math.log10(Math.max(s, 1e-4)) * BINS_A_DECADE);
    counts.set(bin, (counts.get(bin) ?? 0) + 1);
  }
  const bins = [...counts].sort(([a], [b]) => a - b);
  return bins.flatMap(([bin, count]): [number, number][] => {
    const percent = (100 * count) / tasksS.length;
    return [
      [10 ** (bin / BINS_A_DECADE), percent],
      [10 ** ((bin + 1) / BINS_A_DECADE), percent],
    ];
  });
}

const [ROW, LEFT, BAR, GAP, TOP] = [16, 70, 300, 60, 30];

/** Figure 4 as SVG: one line a run, with a bar for its time on a logarithmic scale, and one for its workers. */
export function figure4Svg(runs: readonly RunFigures[]): string {
  const height = TOP + runs.length * ROW + 10;
  const shortest = Math.min(...runs.map(({ endS }) => endS)) / 2;
  const decades = Math.log(Math.max(...runs.map(({ endS }) => endS)) / shortest);
  const most = Math.max(...runs.map(({ workers }) => workers));
  const second = LEFT + BAR + GAP;
  const lines = runs.map(({ name, endS, workers }, i) => {
    const y = TOP + i * ROW;
    const [time, mean] = [(BAR * Math.log(endS / shortest)) / decades, (BAR * workers) / most];
    const bar = (x: number, width: number, color: string, value: string) =>
      `<rect x="${x}" y="${y + 3}" width="${width.toFixed(1)}" height="${ROW - 5}" fill="${color}"/>` +
      `<text x="${(x + width + 4).toFixed(1)}" y="${y + 12}">${value}</text>`;
    const label = `<text x="${LEFT - 6}" y="${y + 12}" text-anchor="end">${name}</text>`;
    return `${label}${bar(LEFT, time, '#2563a8', endS.toFixed(0))}${bar(second, mean, '#b0563b', workers.toFixed(1))}`;
  });
  const heads =
    `<text x="${LEFT}" y="18" font-weight="bold">Seconds of a run (logarithmic)</text>` +
    `<text x="${second}" y="18" font-weight="bold">Mean number of workers</text>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${second + BAR + GAP} ${height}" font-family="sans-serif" font-size="11">\n<title>Time and workers of each run</title>\n<rect width="100%" height="100%" fill="white"/>\n${heads}\n${lines.join('\n')}\n</svg>\n`;
}
