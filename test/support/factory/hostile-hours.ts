/**
 * Simulates hours of a factory with two clusters, and checks invariants after each round. The schedulers take jobs
 * without an answer, list nothing, hide idle GPUs, let jobs wait for hours, preempt, and give jobs of both clusters the
 * same numbers.
 */
import { parseConfig } from '../../../factory/config/read-config.ts';
import type { FactoryConfig } from '../../../factory/config/schema.ts';
import type { Memory } from '../../../factory/decisions/persisted-state.ts';
import type { RoundDependencies, RoundResult } from '../../../factory/life/run-round.ts';
import { seeded } from '../random.ts';
import { type Fault, SimulatedCluster, type SimulatedJob } from './simulator/simulated-cluster.ts';
import { SimulatedFactory } from './simulator/simulated-factory.ts';

const HOUR_MS = 3_600_000;
const STEP_MS = 5_000;
const ROUND_MS = 15_000;
/** After this many correct lists of a job, the factory must know it. */
const LISTS_MAX = 3;
/** After this many rounds without a fault, the first replica of a requested model must have been submitted. */
const FIRST_MAX = 40;
/** Faults under which every list is correct, and every call is answered. */
const QUIET: ReadonlySet<Fault> = new Set(['hides', 'holds']);
/** Maximum duration of each fault. */
const FAULTS: readonly [Fault, number][] = [
  ['stalls', 120_000],
  ['loses', 60_000],
  ['empty', 80_000],
  ['omits', 80_000],
  ['hides', 1_800_000],
  ['holds', 5_400_000],
  ['down', 600_000],
];

const cluster = (id: string) => `
[clusters.${id}]
launcher = "slurm"
max_jobs = 16
max_pending = 3

[[clusters.${id}.pools]]
name = "normal"
gpu = "H100"
gpus_per_node = 4
time = "02:00:00"
`;

const model = (id: string, gpus: number, more: string) => `
[recipes.${id}]
weights = "${id}"
load = "1m"
ready_within = "10m"
[[recipes.${id}.engines]]
gpu = ["H100"]
gpus = ${gpus}
engine = "vllm"
[models.${id}]
recipe = "${id}"
idle = "5m"
${more}
`;

const TEXT = `factory = "pool"
gateway = "https://otela.example.org"
token_file = "token"
state = "state"
[guest]
submissions_per_minute = 8
max_jobs = 24
${cluster('alps')}${cluster('daint')}
${model('batch', 1, 'max = 12')}${model('chat', 1, 'max = 3')}${model('large', 4, 'max = 2\npriority = 5')}`;

interface Hours {
  violations: string[];
  submitted: number;
  preempted: number;
}

export interface HoursOptions {
  seed: number;
  hours: number;
  mutant?(parts: RoundDependencies): RoundDependencies;
}

function faultScript(seed: number, until: number): (now: number) => Fault | undefined {
  const random = seeded(seed);
  const spans: { from: number; to: number; fault: Fault }[] = [];
  for (let at = 300_000 * random(); at < until; ) {
    const [fault, longest] = FAULTS[Math.floor(random() * FAULTS.length)] ?? ['stalls', 0];
    const to = at + Math.max(20_000, longest * random());
    spans.push({ from: at, to, fault });
    at = to + 120_000 + 600_000 * random();
  }
  return (now) => spans.find(({ from, to }) => from <= now && now < to)?.fault;
}

export async function hostileHours({ seed, hours, mutant }: HoursOptions): Promise<Hours> {
  const read = parseConfig(TEXT);
  if ('faults' in read) throw new Error(JSON.stringify(read.faults));
  const random = seeded(seed);
  const until = (hours - 1) * HOUR_MS;
  const clusters = ['alps', 'daint'].map(
    (id, n) =>
      new SimulatedCluster({
        id,
        pool: 'normal',
        random,
        free: (now) => Math.max(0, 6 + Math.round(6 * Math.sin((now / HOUR_MS) * 3 + seed + 2 * n))),
        faultAt: faultScript(seed * 31 + n, until),
        lifeMs: () => (random() < 0.05 ? HOUR_MS * random() : Number.POSITIVE_INFINITY),
        limitMs: 2 * HOUR_MS,
        everyMs: 30_000,
        lagMs: () => (random() < 0.2 ? 30_000 * random() : 0),
      }),
  );
  const [first, ...others] = clusters;
  if (first === undefined) throw new Error('no cluster');
  const factory = new SimulatedFactory({
    config: read.config,
    cluster: first,
    others,
    models: (placed) =>
      placed.map(({ model: { id }, places }, n) => ({
        id,
        contexts: places.map(({ context }) => context),
        loadMs: 60_000,
        linesPerS: 5,
        requestsAt: (now) =>
          id !== 'batch' && now < until && Math.sin(now / HOUR_MS / 0.3 + n * 2 + seed) > 0.2
            ? 1 + (Math.floor(now / 60_000) % 12)
            : 0,
      })),
    killAt: (now) => now < until && random() < 0.05,
    ...(mutant === undefined ? {} : { mutant }),
  });
  const watch = new Watch(read.config, clusters, factory);
  for (let now = STEP_MS; now <= hours * HOUR_MS && watch.violations.size < 5; now += STEP_MS) {
    if (now < until) factory.engines.lines.set('batch', 5_000);
    else factory.engines.lines.clear();
    const result = await factory.step(now, now % ROUND_MS === 0);
    if (now % ROUND_MS === 0) watch.round(result, now);
  }
  if (watch.violations.size === 0)
    for (const one of clusters)
      for (const job of one.alive())
        watch.violations.add(`${one.keyOf(job)} is ${job.state} an hour after the last demand`);
  return {
    violations: [...watch.violations],
    submitted: clusters.reduce((sum, one) => sum + one.submitted, 0),
    preempted: clusters.reduce((sum, one) => sum + one.preempted, 0),
  };
}

/** Knows the real state of all schedulers, and checks the factory's rounds against it. */
class Watch {
  readonly violations = new Set<string>();
  readonly #config: FactoryConfig;
  readonly #clusters: readonly SimulatedCluster[];
  readonly #factory: SimulatedFactory;
  /** By job: correct lists that named it. */
  readonly #listed = new Map<string, number>();
  /** By model: rounds in which requests waited for its first job without an obstacle. */
  readonly #waited = new Map<string, number>();

  constructor(config: FactoryConfig, clusters: readonly SimulatedCluster[], factory: SimulatedFactory) {
    this.#config = config;
    this.#clusters = clusters;
    this.#factory = factory;
  }

  round(result: RoundResult | undefined, now: number): void {
    const { memory } = this.#factory;
    const found = [
      ...this.#orphans(memory),
      ...(result === undefined ? [] : [...this.#tooMany(result), ...this.#behind(result), ...this.#drained(result)]),
    ];
    for (const one of found) this.violations.add(`${(now / HOUR_MS).toFixed(2)} h: ${one}`);
  }

  #alive(): { key: string; job: SimulatedJob; model: string | undefined; cluster: SimulatedCluster }[] {
    return this.#clusters.flatMap((one) =>
      one.alive().map((job) => {
        const model = this.#factory.engines.modelOf(job.name)?.id;
        return { key: one.keyOf(job), job, model, cluster: one };
      }),
    );
  }

  /**
   * Finds models with a submitted job for which more jobs run or wait than are wanted, without jobs that are being
   * ended.
   */
  #tooMany({ actions, wanted }: RoundResult): string[] {
    const { jobs } = this.#factory.memory;
    const submitted = new Set(actions.flatMap((action) => (action.kind === 'submit' ? [action.model] : [])));
    return [...submitted].flatMap((id) => {
      const there = this.#alive().filter(
        ({ key, model, job }) => model === id && jobs[key]?.asked === undefined && job.cancelled === undefined,
      );
      const want = wanted.get(id)?.jobs ?? 0;
      return there.length > want ? [`${there.length} jobs of ${id}, wanted ${want}`] : [];
    });
  }

  #orphans({ jobs }: Memory): string[] {
    const alive = this.#alive();
    const keys = new Set(alive.map(({ key }) => key));
    for (const key of this.#listed.keys()) if (!keys.has(key)) this.#listed.delete(key);
    return alive.flatMap(({ key, job, cluster: one }) => {
      const isTrue = one.fault === undefined && job.shows <= one.now;
      const lists = (this.#listed.get(key) ?? 0) + (isTrue ? 1 : 0);
      this.#listed.set(key, lists);
      return lists > LISTS_MAX && jobs[key] === undefined ? [`${key} is not known`] : [];
    });
  }

  /** Finds requested models whose first job is not submitted, or is submitted after the growth of another model. */
  #behind({ actions, held, world }: RoundResult): string[] {
    const alive = this.#alive();
    const jobsOf = (id: string) => alive.filter(({ model: of }) => of === id);
    const isCalm = this.#clusters.every(({ fault }) => fault === undefined || QUIET.has(fault));
    return this.#config.models.flatMap(({ id }) => {
      const because = held.get(id) ?? '';
      const isHeld = (world.demand.get(id)?.waiting ?? 0) > 0 && jobsOf(id).length === 0 && because.includes('already');
      // Further jobs of other models on a cluster whose cap prevents this first job.
      const growing = actions.filter(
        (action) =>
          action.kind === 'submit' &&
          jobsOf(action.model).length > action.count &&
          because.includes(`already wait at ${action.place.cluster.id}`),
      );
      const mayYield = alive.some(
        ({ job, model: of }) => job.state === 'pending' && of !== undefined && of !== id && jobsOf(of).length > 1,
      );
      const rounds = isHeld && isCalm && mayYield ? (this.#waited.get(id) ?? 0) + 1 : 0;
      this.#waited.set(id, rounds);
      return [
        ...(isHeld
          ? growing.map(({ model: of }) => `${of} grows while the first job of ${id} is held: ${because}`)
          : []),
        ...(rounds > FIRST_MAX ? [`people wait for ${id}, and it is held: ${because}`] : []),
      ];
    });
  }

  /** Finds engines that were drained for a waiting model although a cluster had idle GPUs for it. */
  #drained({ actions }: RoundResult): string[] {
    return actions.flatMap((action) => {
      if (action.kind !== 'drain') return [];
      const wanting = /(\S+) needs the place more/.exec(action.why)?.[1];
      const placed = this.#factory.placed.find(({ model: { id } }) => id === wanting);
      const waits = this.#alive().some(({ model: of }) => of === wanting);
      if (placed === undefined || !waits) return [];
      const roomy = this.#clusters.filter(
        (one) => one.fault === undefined && one.idle() >= (placed.places[0]?.engine.gpus ?? 1),
      );
      return roomy.map(({ id }) => `${action.job} is drained for ${wanting}, and ${id} has idle GPUs`);
    });
  }
}
