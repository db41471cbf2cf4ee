/**
 * Simulates a batch on the free GPUs of a busy cluster: 24 hours, at most 20 jobs of one GPU, and the use of each
 * GPU-second.
 */
import { parseConfig } from '../../../../factory/config/read-config.ts';
import { seeded } from '../../random.ts';
import { SimulatedCluster } from './simulated-cluster.ts';
import { SimulatedFactory } from './simulated-factory.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const STEP_MS = 5_000;
const ROUND_MS = 15_000;
const POINT_MS = 300_000;
const MAX_JOBS = 20;
const LOAD_S = 240;
/** Engine time that a preemption costs, because the lines in flight are answered again elsewhere. */
const LOST_S = 15;
/** Slurm's backfill runs every half minute, on a busy cluster less often. */
const SCHEDULER_MS = 60_000;

/** Draws from the normal distribution with mean 0 and standard deviation 1. */
const normal = (random: () => number): number =>
  Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());

const TEXT = `factory = "busy"
gateway = "https://otela.example.org"
token_file = "token"
state = "state"
[guest]
submissions_per_minute = 10
[clusters.site]
launcher = "slurm"
max_jobs = ${MAX_JOBS}
max_pending = 4
[[clusters.site.pools]]
name = "preempt"
gpu = "A10"
gpus_per_node = 4
time = "12:00:00"
preemptable = true
[recipes.m]
weights = "m"
load = "${LOAD_S}s"
[[recipes.m.engines]]
gpu = ["A10"]
gpus = 1
engine = "vllm"
[models.m]
recipe = "m"
max = ${MAX_JOBS}
idle = "2m"
`;

export interface BusyDay {
  /**
   * GPU-hours that were free (at any time at most MAX_JOBS GPUs count), that jobs used, and that jobs spent on loading.
   */
  free: number;
  used: number;
  loading: number;
  working: number;
  idle: number;
  /** GPU-hours of work that was repeated after preemptions. */
  lost: number;
  jobs: number;
  preempted: number;
  points: { at: number; free: number; running: number; working: number; pending: number }[];
}

/**
 * Free GPUs by the minute: an invented trace. It resembles the site of the paper arXiv 2509.13201, with daily means of
 * 11 to 64 GPUs. Other users' jobs begin and end in groups, so the number stays for a while and then jumps; by day it
 * is lower.
 */
function freeGpus(random: () => number): (now: number) => number {
  const minutes: number[] = [];
  let [level, holds] = [16, 0];
  for (let minute = 0; minute <= 24 * 60; minute++) {
    if (holds-- <= 0) {
      const mean = 16 - 6 * Math.sin(((minute / 60 - 9) / 12) * Math.PI);
      level = Math.round(Math.min(40, Math.max(0, mean + 0.7 * (level - mean) + 4 * normal(random))));
      holds = 5 + Math.floor(-25 * Math.log(1 - random()));
    }
    minutes.push(level);
  }
  return (now) => minutes[Math.min(minutes.length - 1, Math.floor(now / 60_000))] ?? 0;
}

export async function busyDay(seed: number): Promise<BusyDay> {
  const read = parseConfig(TEXT);
  if ('faults' in read) throw new Error(JSON.stringify(read.faults));
  const random = seeded(seed);
  const free = freeGpus(seeded(seed + 1_000));
  const cluster = new SimulatedCluster({
    id: 'site',
    pool: 'preempt',
    random,
    free,
    faultAt: () => undefined,
    lifeMs: () => Number.POSITIVE_INFINITY,
    limitMs: 12 * HOUR_MS,
    everyMs: SCHEDULER_MS,
    lagMs: () => 0,
  });
  const factory = new SimulatedFactory({
    config: read.config,
    cluster,
    models: (placed) =>
      placed.map(({ model, places }) => ({
        id: model.id,
        contexts: places.map(({ context }) => context),
        loadMs: LOAD_S * 1_000,
        linesPerS: 3,
        requestsAt: () => 0,
      })),
  });
  factory.engines.lines.set('m', 100_000_000);
  const points: BusyDay['points'] = [];
  let [freeMs, usedMs] = [0, 0];
  for (let now = STEP_MS; now <= DAY_MS; now += STEP_MS) {
    await factory.step(now, now % ROUND_MS === 0);
    const running = cluster.used();
    freeMs += Math.min(MAX_JOBS, free(now)) * STEP_MS;
    usedMs += running * STEP_MS;
    if (now % POINT_MS === 0)
      points.push({
        at: now,
        free: free(now),
        running,
        working: factory.engines.busyGpus(),
        pending: cluster.alive().length - cluster.running().length,
      });
  }
  const hours = (ms: number) => ms / HOUR_MS;
  const { loading, working, idle } = factory.engines.spent;
  return {
    free: hours(freeMs),
    used: hours(usedMs),
    loading: hours(loading),
    working: hours(working),
    idle: hours(idle),
    lost: hours(cluster.preempted * LOST_S * 1_000),
    jobs: cluster.submitted,
    preempted: cluster.preempted,
    points,
  };
}

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [860, 260, 40, 28];

/** GPUs over the day: free, in jobs, and working. */
export function busyDaySvg({ points }: BusyDay): string {
  const top = Math.max(MAX_JOBS, ...points.map(({ free }) => free));
  const x = (at: number) => LEFT + (at / DAY_MS) * (WIDTH - LEFT - 10);
  const y = (gpus: number) => HEIGHT - BOTTOM - (gpus / top) * (HEIGHT - BOTTOM - 30);
  const line = (of: (point: BusyDay['points'][number]) => number) =>
    points.map((point) => `${x(point.at).toFixed(1)},${y(of(point)).toFixed(1)}`).join(' ');
  const hours = [0, 3, 6, 9, 12, 15, 18, 21, 24];
  const gpus = [0, 10, 20, 30, 40].filter((one) => one <= top);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="system-ui, sans-serif" font-size="11">
<title>GPUs of a simulated day: free, in jobs, answering lines</title>
<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>
<text x="${LEFT}" y="16" fill="#475569">GPUs of a simulated day: <tspan fill="#94a3b8">free</tspan>, <tspan fill="#2563eb">in jobs</tspan> (at most ${MAX_JOBS}), <tspan fill="#16a34a">answering lines</tspan></text>
${gpus.map((one) => `<line x1="${LEFT}" x2="${WIDTH - 10}" y1="${y(one).toFixed(1)}" y2="${y(one).toFixed(1)}" stroke="#e2e8f0"/><text x="${LEFT - 6}" y="${(y(one) + 4).toFixed(1)}" text-anchor="end" fill="#64748b">${one}</text>`).join('\n')}
${hours.map((one) => `<text x="${x(one * HOUR_MS).toFixed(1)}" y="${HEIGHT - 8}" text-anchor="middle" fill="#64748b">${one}:00</text>`).join('\n')}
<polyline fill="none" stroke="#cbd5e1" stroke-width="1.5" points="${line(({ free }) => free)}"/>
<polyline fill="none" stroke="#2563eb" stroke-width="1.5" points="${line(({ running }) => running)}"/>
<polyline fill="none" stroke="#16a34a" stroke-width="1.5" points="${line(({ working }) => working)}"/>
</svg>
`;
}
