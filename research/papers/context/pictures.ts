import { chartsSvg, type Series } from '../../../shared/text/svg-chart.ts';
import { type Result, type Run, simulateWorkers } from '../../contexts/simulate.ts';
import { allRuns, figure4, figure4Svg, histogram } from './all-runs.ts';
import { BATCH_SIZES, DAILY_GPUS, evictedRun, leavingRun, opportunistic, PV6_GPUS, pv5p, pv5s } from './runs.ts';

const SEED = 1;
/** 20 workers, one a minute from 900 s on. */
const LAST_EVICTION_S = 900 + 19 * 60;
/** The runs in the paper's Figure 5. */
const TASK_TIMES: readonly [string, readonly string[]][] = [
  ['One inference a task', ['pv3_1', 'pv4_1']],
  ['100 inferences a task', ['pv3_100', 'pv4_100']],
];

function runOf(name: string): Run {
  const found = allRuns(SEED).find(([one]) => one === name);
  if (found === undefined) throw new Error(`there is no run ${name}`);
  return found[1];
}

/** The paper's Figures 4 to 7 from our simulation, as [name, SVG]. */
export function pictures(found: ReadonlyMap<string, number>): [string, string][] {
  const of = (name: string) => found.get(name) ?? 0;
  const byBatch = (prefix: string) => BATCH_SIZES.map((batch): [number, number] => [batch, of(`${prefix}_${batch}`)]);
  const runs = [
    ...[PV6_GPUS, ...DAILY_GPUS].map((gpus): [string, Run] => [`${gpus} GPUs at most`, opportunistic(gpus, SEED)]),
    ['186 GPUs, each taken back after half an hour', leavingRun(PV6_GPUS, SEED)] as [string, Run],
  ].map(([name, run]): [string, Result, Run] => [name, simulateWorkers(run), run]);
  return [
    ['context-runs', figure4Svg(figure4(SEED))],
    [
      'context-task-times',
      chartsSvg(
        TASK_TIMES.map(([title, names]) => ({
          title,
          x: 'seconds of a task',
          y: 'percent of the tasks',
          log: 'x',
          series: names.map((name) => ({ name, points: histogram(simulateWorkers(runOf(name))) })),
        })),
      ),
    ],
    [
      'context-batch-size',
      chartsSvg([
        {
          title: 'Time by batch size, 20 GPUs',
          x: 'inferences of a task',
          y: 'seconds',
          log: 'xy',
          series: [
            { name: 'context kept on disk (pv3)', points: byBatch('pv3') },
            { name: 'context kept in GPU memory (pv4)', points: byBatch('pv4') },
          ],
        },
      ]),
    ],
    [
      'context-eviction',
      chartsSvg([
        {
          title: 'One worker evicted a minute from 900 s on',
          x: 'seconds',
          y: 'inferences done',
          series: [
            { name: 'on disk, 1,000 a task (pv5p)', points: progress(pv5p(SEED)) },
            { name: 'in GPU memory, 100 a task (pv5s)', points: progress(pv5s(SEED)) },
          ],
        },
        {
          title: 'Connected workers',
          x: 'seconds',
          y: 'workers',
          series: [
            {
              name: 'in both runs',
              points: connected(evictedRun('pervasive', 100, SEED, 'no'), LAST_EVICTION_S),
            },
          ],
        },
      ]),
    ],
    [
      'context-opportunistic',
      chartsSvg([
        {
          title: 'Work on the GPUs that are free',
          x: 'seconds',
          y: 'inferences done',
          series: runs.map(([name, result]): Series => ({ name, points: progress(result) })),
        },
        {
          title: 'Connected workers',
          x: 'seconds',
          y: 'workers',
          series: runs.map(([name, result, run]): Series => ({ name, points: connected(run, result.endS) })),
        },
      ]),
    ],
  ];
}

function progress({ commits }: Result): [number, number][] {
  let done = 0;
  return commits.map(({ s, inferences }): [number, number] => {
    done += inferences;
    return [s, done];
  });
}

/** Number of connected workers at each change. */
function connected({ workers }: Run, endS: number): [number, number][] {
  const changes = workers.flatMap(({ joinS, leaveS }): [number, number][] => [
    [joinS, 1],
    ...(leaveS === undefined ? [] : [[leaveS, -1] as [number, number]]),
  ]);
  let now = 0;
  const points = changes
    .filter(([s]) => s <= endS)
    .sort(([a], [b]) => a - b)
    .map(([s, change]): [number, number] => {
      now += change;
      return [s, now];
    });
  return [...points, [endS, now]];
}
