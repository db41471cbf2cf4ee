/**
 * Simulates 24 hours of a factory with a scheduler that lies, stalls and loses jobs, and checks the invariants at every
 * moment.
 */
import { parseConfig } from '../../../factory/config/read-config.ts';
import type { FactoryConfig } from '../../../factory/config/schema.ts';
import { DRAIN_MAX_MS } from '../../../factory/decisions/decide-stops.ts';
import type { RoundDependencies } from '../../../factory/life/run-round.ts';
import { seeded } from '../random.ts';
import { type Fault, SimulatedCluster } from './simulator/simulated-cluster.ts';
import { SimulatedFactory } from './simulator/simulated-factory.ts';

const HOUR_MS = 3_600_000;
const STEP_MS = 5_000;
const ROUND_MS = 15_000;
const FAULTS: readonly Fault[] = ['down', 'stalls', 'loses', 'empty', 'omits', 'stale', 'refuses'];

const TEXT = `factory = "pool"
gateway = "https://otela.example.org"
token_file = "token"
state = "state"

[guest]
submissions_per_minute = 8
max_jobs = 18

[clusters.alps]
launcher = "slurm"
max_jobs = 16
max_pending = 4

[[clusters.alps.pools]]
name = "normal"
gpu = "H100"
gpus_per_node = 4
time = "02:00:00"

[recipes.small]
weights = "small"
load = "1m"
ready_within = "10m"
[[recipes.small.engines]]
gpu = ["H100"]
gpus = 1
engine = "vllm"

[recipes.large]
weights = "large"
load = "4m"
ready_within = "20m"
[[recipes.large.engines]]
gpu = ["H100"]
gpus = 4
engine = "vllm"

[models.small]
recipe = "small"
max = 12
idle = "5m"

[models.large]
recipe = "large"
max = 2
priority = 5
idle = "10m"
`;

export interface DayOptions {
  seed: number;
  hours?: number;
  /** True: all engines fail at their start. */
  broken?: boolean;
  mutant?(parts: RoundDependencies): RoundDependencies;
}

export interface Day {
  violations: string[];
  submissions: number;
  jobs: number;
  kills: number;
  notes: { at: number; text: string }[];
  factory: SimulatedFactory;
}

/**
 * Makes a script of faults with at least a minute between two faults. A wrong list lasts at most 90 s, because the
 * factory could not distinguish a longer one from the truth. Other faults last up to 140 s, `down` up to 620 s.
 */
function faultScript(seed: number, hours: number): (now: number) => Fault | undefined {
  const random = seeded(seed * 7919);
  const spans: { from: number; to: number; fault: Fault }[] = [];
  for (let at = 60_000 * random(); at < hours * HOUR_MS; ) {
    const fault = FAULTS[Math.floor(random() * FAULTS.length)] ?? 'down';
    const lies = fault === 'empty' || fault === 'omits' || fault === 'stale';
    const length = lies ? 20_000 + 70_000 * random() : 20_000 + (fault === 'down' ? 600_000 : 120_000) * random();
    spans.push({ from: at, to: at + length, fault });
    at += length + 60_000 + 900_000 * random() ** 2;
  }
  let n = 0;
  return (now) => {
    while ((spans[n]?.to ?? Number.POSITIVE_INFINITY) <= now) n += 1;
    const span = spans[n];
    return span !== undefined && span.from <= now ? span.fault : undefined;
  };
}

function configOf(): FactoryConfig {
  const read = parseConfig(TEXT);
  if ('faults' in read) throw new Error(JSON.stringify(read.faults));
  return read.config;
}

export async function simulateDay({ seed, hours = 24, broken = false, mutant }: DayOptions): Promise<Day> {
  const config = configOf();
  const random = seeded(seed);
  const demandEnds = (hours - 1) * HOUR_MS;
  const faultAt = faultScript(seed, hours - 1);
  const cluster = new SimulatedCluster({
    id: 'alps',
    pool: 'normal',
    random,
    free: (now) => 10 + Math.round(8 * Math.sin((now / HOUR_MS) * 1.7 + seed)),
    faultAt,
    lifeMs: () =>
      random() < 0.05 ? 1_000 + 60_000 * random() : random() < 0.1 ? HOUR_MS * random() : Number.POSITIVE_INFINITY,
    limitMs: 2 * HOUR_MS,
    everyMs: 30_000,
    lagMs: () => (random() < 0.2 ? 60_000 * random() : 0),
  });
  const gatewayOut = seeded(seed + 1)() * demandEnds;
  const factory = new SimulatedFactory({
    config,
    cluster,
    models: (placed) =>
      placed.map(({ model, places }, n) => ({
        id: model.id,
        contexts: places.map(({ context }) => context),
        loadMs: places[0]?.recipe.load ?? 0,
        linesPerS: 5,
        requestsAt: (now) =>
          now < demandEnds && Math.sin(now / HOUR_MS + n * 2 + seed) > 0.3 ? 1 + (Math.floor(now / 60_000) % 12) : 0,
      })),
    gatewayAt: (now) => now < gatewayOut || now > gatewayOut + 20 * 60_000,
    killAt: (now) => now < demandEnds && random() < 0.15,
    ...(mutant === undefined ? {} : { mutant }),
  });
  factory.engines.broken = () => broken || random() < 0.02;
  const violations = new Set<string>();
  const drainedAt = new Map<string, number>();
  let killedSeen = 0;
  for (let now = STEP_MS; now <= hours * HOUR_MS && violations.size < 5; now += STEP_MS) {
    if (now % HOUR_MS === 0 && now < demandEnds && seeded(seed + now)() < 0.5)
      factory.engines.lines.set('small', 20_000);
    if (now >= demandEnds) factory.engines.lines.clear();
    const busy = new Set(
      cluster
        .running()
        .filter((job) => factory.engines.isBusy(cluster.keyOf(job)))
        .map(({ id }) => id),
    );
    await factory.step(now, now % ROUND_MS === 0);
    for (const [key, { asked, id }] of Object.entries(factory.memory.jobs))
      if (asked?.what === 'drain' && !drainedAt.has(id)) drainedAt.set(key.split('/')[1] ?? id, asked.at);
    for (const { id } of cluster.killed.slice(killedSeen)) {
      const drained = drainedAt.get(id);
      if (busy.has(id) && (drained === undefined || now - drained < DRAIN_MAX_MS))
        violations.add(`job ${id} was cancelled while it answered`);
    }
    killedSeen = cluster.killed.length;
    for (const one of limits(config, cluster, factory, now)) violations.add(one);
  }
  // The simulation ends with an hour without demand and faults.
  if (violations.size === 0)
    for (const { id, name, state } of cluster.alive())
      violations.add(`job ${id} (${name}) is ${state} an hour after the last demand`);
  const submissions = cluster.asked.reduce((sum, { count }) => sum + count, 0);
  return {
    violations: [...violations],
    submissions,
    jobs: cluster.jobs.length,
    kills: factory.kills,
    notes: factory.notes,
    factory,
  };
}

function limits(config: FactoryConfig, cluster: SimulatedCluster, factory: SimulatedFactory, now: number): string[] {
  const found: string[] = [];
  const alive = cluster.alive();
  const at = `${Math.floor(now / HOUR_MS)}h`;
  for (const model of config.models) {
    const jobs = alive.filter(({ name }) => factory.engines.modelOf(name)?.id === model.id).length;
    if (jobs > model.max) found.push(`${at}: ${jobs} jobs of ${model.id}, at most ${model.max}`);
  }
  const [own] = config.clusters;
  if (own !== undefined) {
    const pending = alive.filter(({ state }) => state === 'pending').length;
    if (alive.length > own.max_jobs) found.push(`${at}: ${alive.length} jobs, at most ${own.max_jobs}`);
    if (pending > own.max_pending) found.push(`${at}: ${pending} jobs wait, at most ${own.max_pending}`);
  }
  const minute = cluster.asked.filter((one) => now - one.at < 60_000).reduce((sum, { count }) => sum + count, 0);
  if (minute > config.guest.submissions_per_minute) found.push(`${at}: ${minute} submissions in a minute`);
  return found;
}
