import { barsSvg } from '../../../scheduler/cli/bar-chart.ts';
import { chartsSvg, type Series } from '../../../shared/text/svg-chart.ts';
import { type Result, simulateWorkers } from '../../contexts/simulate.ts';
import { BATCH_SIZES, DAILY_GPUS, opportunistic, PV6_GPUS, pv5p, pv5s } from './runs.ts';

const SEED = 1;
/** The runs in the paper's Figure 4, in its order. */
const FIGURE_4 = ['pv0', 'pv1', 'pv3_100', 'pv4_100', 'pv6'];

/** The paper's Figures 4 to 7 from our simulation, as [name, SVG]. */
export function pictures(found: ReadonlyMap<string, number>): [string, string][] {
  const of = (name: string) => found.get(name) ?? 0;
  const byBatch = (prefix: string) => BATCH_SIZES.map((batch): [number, number] => [batch, of(`${prefix}_${batch}`)]);
  const runs: [string, Result][] = [PV6_GPUS, ...DAILY_GPUS].map((gpus) => [
    `${gpus} GPUs at most`,
    simulateWorkers(opportunistic(gpus, SEED)),
  ]);
  return [
    [
      'context-runs',
      barsSvg([
        {
          title: 'Time of 150,000 inferences',
          unit: 's',
          more: false,
          values: FIGURE_4.map((name) => ({
            name: name.replace('pv3_100', 'pv2').replace('pv4_100', 'pv4'),
            value: of(name),
          })),
        },
      ]),
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
          series: [PV6_GPUS, ...DAILY_GPUS].map(
            (gpus, i): Series => ({
              name: `${gpus} GPUs at most`,
              points: connected(gpus, runs[i]?.[1].endS ?? 0),
            }),
          ),
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

function connected(gpus: number, endS: number): [number, number][] {
  const { workers } = opportunistic(gpus, SEED);
  const joined = workers.map(({ joinS }, i): [number, number] => [joinS, i + 1]);
  return [...joined, [endS, workers.length]];
}
