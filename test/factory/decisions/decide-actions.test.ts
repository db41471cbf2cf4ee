import { expect, it } from 'vitest';
import { parseConfig } from '../../../factory/config/read-config.ts';
import { blockedHosts } from '../../../factory/decisions/blocked-hosts.ts';
import { type Decisions, decideActions, withIntendedSubmissions } from '../../../factory/decisions/decide-actions.ts';
import { type ClusterView, type FactoryWorld, placedModels } from '../../../factory/decisions/factory-world.ts';
import { assessEnd, type EndedJob, observeJobs } from '../../../factory/decisions/observe-jobs.ts';
import { emptyMemory, jobName, type Memory, startKey } from '../../../factory/decisions/persisted-state.ts';
import { computeWanted } from '../../../factory/decisions/wanted-replicas.ts';
import { noDemand } from '../../../factory/demand/demand-source.ts';
import type { ListedJob } from '../../../node/batch-systems/batch-system.ts';
import type { ModelDemand, ServingNode } from '../../../shared/factory/factory-exchange.ts';
import { CONFIG } from '../../support/factory/config-text.ts';

const LLAMA = 'meta-llama/Llama-3.1-8B-Instruct';
const QWEN = 'Qwen/Qwen3-8B';
const NOW = Date.parse('2026-01-07T12:00:00Z');

/** One autoscaler's memory, and the worlds that it is shown. */
class Bench {
  readonly config;
  readonly models;
  readonly memory: Memory = emptyMemory(NOW);
  now = NOW;
  readonly ended: EndedJob[] = [];

  constructor(text = CONFIG) {
    const read = parseConfig(text);
    if ('faults' in read) throw new Error(JSON.stringify(read.faults));
    this.config = read.config;
    this.models = placedModels(read.config);
  }

  job(model: string, id: string, state: ListedJob['state'] = 'running', more: Partial<ListedJob> = {}): ListedJob {
    const context = this.models.find((one) => one.model.id === model)?.places[0]?.context ?? '0'.repeat(12);
    return { id, name: jobName('pool', context, 1), state, ...more };
  }

  /** `before`: the previous round's result, if the same process ran it. */
  round(
    view: ClusterView | readonly ListedJob[],
    demand: (Partial<ModelDemand> & { model: string })[] = [],
    nodes: ServingNode[] | undefined = [],
    before?: number,
  ): Decisions {
    const clusters = new Map<string, ClusterView>([
      ['alps', 'reachable' in view ? view : { reachable: true, jobs: view }],
    ]);
    const world: FactoryWorld = {
      config: this.config,
      models: this.models,
      clusters,
      demand: new Map(demand.map((one) => [one.model, { ...noDemand(one.model), ...one }])),
      nodes,
      ...(before === undefined ? {} : { before }),
    };
    for (const one of observeJobs(this.memory, world, this.now).ended) {
      this.ended.push(one);
      assessEnd(one, undefined, this.memory, world, this.now);
    }
    const decisions = decideActions(this.memory, world, this.now);
    this.now += 15_000;
    return decisions;
  }
}

const node = (id: string, more: Partial<ServingNode> = {}): ServingNode => ({
  session: `session-${id}`,
  state: 'ready',
  in_flight: 0,
  idle_ms: 0,
  labels: { 'factory-job': `alps/${id}` },
  ...more,
});
const kinds = ({ actions }: Decisions) => actions.map((action) => [action.kind, action.model]);

it('a host on which starts fail is blamed once the recipe has served on another, and not before', () => {
  const bench = new Bench();
  const waiting = [{ model: LLAMA, waiting: 3, oldest_wait_ms: 1_000 }];
  const fails = (id: string) => {
    bench.round([bench.job(LLAMA, id, 'running', { host: 'nid1' })], waiting);
    bench.round([bench.job(LLAMA, id, 'ended', { host: 'nid1', ended: 'failed' })], waiting);
  };
  fails('1');
  expect(bench.memory.hosts, 'the recipe may be broken').toEqual({});
  bench.round([bench.job(LLAMA, '2', 'running', { host: 'nid2' })], waiting, [node('2')]);
  fails('3');
  fails('4');
  expect(Object.keys(bench.memory.hosts)).toEqual(['alps/nid1']);
  expect(blockedHosts(bench.memory, 'alps', bench.now)).toEqual(['nid1']);
});

it('a request for a cold model starts one job, and no second one while the first is on its way', () => {
  const bench = new Bench();
  const waiting = [{ model: LLAMA, waiting: 3, oldest_wait_ms: 1_000 }];
  expect(kinds(bench.round([], waiting))).toEqual([['submit', LLAMA]]);
  expect(kinds(bench.round([bench.job(LLAMA, '1', 'pending')], waiting))).toEqual([]);
  expect(kinds(bench.round([bench.job(LLAMA, '1')], waiting))).toEqual([]);
});

it('replicas of others are enough: a model that is asked for and served is not started', () => {
  expect(kinds(new Bench().round([], [{ model: LLAMA, asked_ms_ago: 1_000, ready_replicas: 1 }]))).toEqual([]);
});

it('requests that made the first replica start do not start a second one while the gateway still counts them', () => {
  const bench = new Bench();
  bench.round([bench.job(LLAMA, '1')], [{ model: LLAMA, waiting: 1 }]);
  const queued = [{ model: LLAMA, queued: 1, ready_replicas: 1 }];
  const rounds = Array.from({ length: 3 }, () => kinds(bench.round([bench.job(LLAMA, '1')], queued, [node('1')])));
  // 0 s, 15 s and 30 s after it became ready.
  expect(rounds[0]).toEqual([]);
  expect(rounds[1]).toEqual([['submit', LLAMA]]);
});

it('a controller that is away for ten minutes changes nothing, and nothing is submitted meanwhile', () => {
  const bench = new Bench();
  const waiting = [{ model: LLAMA, waiting: 1 }];
  bench.round([bench.job(LLAMA, '1'), bench.job(LLAMA, '2', 'pending')], [{ model: LLAMA, batch: { lines: 150 } }]);
  for (let n = 0; n < 40; n++) {
    const { actions, held } = bench.round({ reachable: false, reason: 'Unable to contact slurm controller' }, [
      { model: LLAMA, batch: { lines: 1_000 } },
      ...waiting.slice(1),
    ]);
    expect(actions).toEqual([]);
    expect(held.get(LLAMA)).toContain('alps does not answer: Unable to contact slurm controller');
  }
  expect(Object.keys(bench.memory.jobs)).toEqual(['alps/1', 'alps/2']);
});

it('a gateway that is away ends nothing, and starts nothing but what is kept anyway', () => {
  const bench = new Bench(CONFIG.replace('max = 2', 'max = 2\nmin = 1'));
  const idle = [node('1', { idle_ms: 10_000_000 })];
  bench.round([bench.job(LLAMA, '1')], [], idle);
  const blind = new Bench(CONFIG.replace('max = 2', 'max = 2\nmin = 1'));
  const { actions } = blind.round(
    [blind.job(LLAMA, '1'), blind.job(LLAMA, '2', 'pending')],
    [{ model: LLAMA, batch: { lines: 5_000 } }],
    undefined,
  );
  expect(actions.map((action) => [action.kind, action.model])).toEqual([['submit', QWEN]]);
});

it('jobs that wait are cancelled before one that runs is drained', () => {
  const bench = new Bench();
  const listed = [bench.job(LLAMA, '1'), bench.job(LLAMA, '2', 'pending')];
  const { actions } = bench.round(
    listed,
    [{ model: LLAMA, asked_ms_ago: 1_000, ready_replicas: 1 }],
    [node('1', { idle_ms: 1_000 })],
  );
  expect(actions).toEqual([expect.objectContaining({ kind: 'cancel', jobs: ['2'] })]);
});

it('an idle engine is drained by its session, kept for as long as the gateway knows it, and cancelled when nothing is left', () => {
  const bench = new Bench();
  const listed = [bench.job(LLAMA, '1')];
  bench.round(listed, [], [node('1')]);
  expect(bench.round(listed, [], [node('1', { idle_ms: 600_000 })]).actions).toEqual([
    expect.objectContaining({ kind: 'drain', session: 'session-1' }),
  ]);
  const draining = [node('1', { state: 'draining', in_flight: 1 })];
  for (let n = 0; n < 10; n++) expect(kinds(bench.round(listed, [], draining))).toEqual([]);
  expect(kinds(bench.round(listed, [], [node('1', { state: 'draining' })]))).toEqual([['cancel', LLAMA]]);
});

it('a drain that never ends is a cancellation after a quarter of an hour', () => {
  const bench = new Bench();
  const listed = [bench.job(LLAMA, '1')];
  bench.round(listed, [], [node('1', { idle_ms: 600_000 })]);
  const stuck = [node('1', { state: 'draining', in_flight: 1 })];
  const rounds = Array.from({ length: 62 }, () => kinds(bench.round(listed, [], stuck)).length);
  expect(rounds.findIndex((count) => count > 0)).toBe(59);
});

it('an engine that nobody uses gives its GPUs to a model of the same or a higher priority, so often an hour', () => {
  const full = CONFIG.replace('max_jobs = 8', 'max_jobs = 1').replace(
    'state = "state"',
    'state = "state"\n[guest]\nswitches_per_hour = 1',
  );
  const bench = new Bench(full);
  const listed = [bench.job(LLAMA, '1')];
  const wants = [{ model: QWEN, waiting: 1 }];
  bench.round(listed, [], [node('1')]);
  // Between two requests of a conversation it stays, although the other model has a higher priority: it is not idle,
  // and is drained.
  const { actions, held } = bench.round(listed, wants, [node('1', { idle_ms: 60_000 })]);
  expect(actions).toEqual([
    expect.objectContaining({ kind: 'drain', why: expect.stringContaining(`${QWEN} needs the place more`) }),
  ]);
  expect(held.get(QWEN)).toContain('alps has its maximum of 1 jobs');
  const again = new Bench(full);
  again.memory.switches = [NOW - 60_000];
  expect(kinds(again.round([again.job(LLAMA, '1')], wants, [node('1', { idle_ms: 60_000 })]))).toEqual([]);
});

it('a job that has just been submitted drains no engine, nor one for which GPUs are idle', () => {
  const wants = [{ model: QWEN, waiting: 1 }];
  const idle = [node('1', { idle_ms: 60_000 })];
  const after = (ms: number, free: number) => {
    const bench = new Bench();
    const pool = bench.models[0]?.places[0]?.pool.name ?? '';
    const listed = [bench.job(LLAMA, '1'), bench.job(QWEN, '2', 'pending')];
    const view = { reachable: true as const, jobs: listed, capacity: [{ pool, idle: free }] };
    bench.round(view, wants, idle);
    bench.now += ms;
    return kinds(bench.round(view, wants, idle));
  };
  // One GPU belongs to the engine, and the waiting job needs two.
  expect(after(15_000, 1)).toEqual([]);
  expect(after(180_000, 2)).toEqual([]);
  expect(after(180_000, 1)).toEqual([['drain', LLAMA]]);
  // It would not be enough.
  expect(after(180_000, 0)).toEqual([]);
});

it('a job that waits gives its place to the first replica of a model that people wait for', () => {
  const bench = new Bench(CONFIG.replace('max_pending = 2', 'max_pending = 4'));
  const lines = { model: LLAMA, batch: { lines: 1_000_000 } };
  const pending = ['1', '2', '3', '4'].map((id) => bench.job(LLAMA, id, 'pending'));
  bench.round(pending, [lines]);
  const { actions, held } = bench.round(pending, [lines, { model: QWEN, waiting: 1 }]);
  expect(actions).toEqual([expect.objectContaining({ kind: 'cancel', model: LLAMA })]);
  expect(held.get(QWEN)).toContain('4 jobs already wait at alps');
  const cancelled = actions.flatMap((action) => (action.kind === 'cancel' ? action.jobs : []));
  const left = pending.filter(({ id }) => !cancelled.includes(id));
  // The scheduler's lists no longer contain it; no other job is ended meanwhile.
  const next = Array.from({ length: 12 }, () => bench.round(left, [lines, { model: QWEN, waiting: 1 }]).actions).flat();
  const others = next.filter(
    (action) => action.kind === 'cancel' && !action.jobs.every((id) => cancelled.includes(id)),
  );
  expect(others).toEqual([]);
  expect(next.find(({ kind }) => kind === 'submit')).toMatchObject({ model: QWEN });
});

it('a second replica keeps its place in the queue though the first is crowded only now and then', () => {
  const bench = new Bench();
  const second = bench.job(LLAMA, '2', 'pending');
  const listed = [bench.job(LLAMA, '1')];
  bench.round(listed, [], [node('1')]);
  bench.now += 60_000;
  const seen: unknown[] = [];
  for (let n = 0; n < 40; n++) {
    const busy = n % 2 === 0 ? 0.95 : 0.5;
    const demand = [{ model: LLAMA, asked_ms_ago: 0, busy, ready_replicas: 1 }];
    seen.push(...kinds(bench.round(n === 0 ? listed : [...listed, second], demand, [node('1')])));
  }
  expect(seen).toEqual([['submit', LLAMA]]);
});

it('an engine of a higher priority keeps its GPUs', () => {
  const bench = new Bench(CONFIG.replace('max_jobs = 8', 'max_jobs = 1'));
  const { actions } = bench.round(
    [bench.job(QWEN, '1')],
    [{ model: LLAMA, waiting: 1 }],
    [node('1', { idle_ms: 60_000 })],
  );
  expect(actions).toEqual([]);
});

it('jobs of a recipe that was edited serve until nobody asks, and count', () => {
  const bench = new Bench();
  bench.round([bench.job(LLAMA, '1')], [], [node('1')]);
  const edited = new Bench(
    CONFIG.replace('gpus = 1\nengine = "vllm"', 'gpus = 1\nengine = "vllm"\narguments = ["--max-model-len", "8192"]'),
  );
  Object.assign(edited.memory, bench.memory);
  const listed = [bench.job(LLAMA, '1')];
  const busy = [{ model: LLAMA, in_flight: 3, busy: 0.3, ready_replicas: 1, batch: { lines: 10 } }];
  expect(kinds(edited.round(listed, busy, [node('1', { in_flight: 3 })]))).toEqual([['submit', LLAMA]]);
  expect(kinds(edited.round(listed, busy, [node('1', { in_flight: 0 })]))).toContainEqual(['drain', LLAMA]);
});

it('a job of a model that the file has no more is ended', () => {
  const bench = new Bench();
  const stray = { id: '9', name: jobName('pool', 'f'.repeat(12), 1), state: 'pending' as const };
  expect(bench.round([stray]).actions).toEqual([expect.objectContaining({ kind: 'cancel', jobs: ['9'] })]);
  // Jobs of another autoscaler with a name that starts like ours are not ours.
  expect(bench.round([{ ...stray, id: '10', name: 'otela-pool-two--ffffffffffff-1' }]).actions).toEqual([]);
});

it('a job that an administrator cancelled is not there again at once', () => {
  const bench = new Bench();
  const wants = [{ model: LLAMA, waiting: 1 }];
  bench.round([bench.job(LLAMA, '1')], wants);
  bench.round([bench.job(LLAMA, '1', 'ended', { ended: 'cancelled' })], wants);
  // The round that reads its log classifies the end; here it is at least known.
  expect(bench.memory.jobs).toEqual({});
});

it('a model that is always on keeps its replica though nobody asks for it', () => {
  const bench = new Bench();
  const always = { model: LLAMA, wanted: [{ from: 'the catalogue (always on)', replicas: 1 }] };
  expect(kinds(bench.round([], [always]))).toEqual([['submit', LLAMA]]);
  const idle = [node('1', { idle_ms: 86_400_000 })];
  const round = (demand: Partial<ModelDemand> & { model: string }) => {
    bench.now += 3_600_000;
    return kinds(bench.round([bench.job(LLAMA, '1')], [{ ...demand, ready_replicas: 1 }], idle));
  };
  expect([round(always), round(always)]).toEqual([[], []]);
  // Idle for a day, it ends once the model is no longer always on.
  expect(round({ model: LLAMA })).toEqual([['drain', LLAMA]]);
});

it("warm hours are those of the file's time zone, over midnight as well", () => {
  const text = CONFIG.replace('state = "state"', 'state = "state"\ntimezone = "Europe/Zurich"').replace(
    'priority = 5',
    'priority = 5\nwarm = [{ days = ["fri"], from = "22:00", to = "06:00" }]',
  );
  const bench = new Bench(text);
  const model = bench.config.models[1];
  if (model === undefined) throw new Error('no model');
  const at = (time: string) => computeWanted(model, undefined, { count: 0 }, bench.config, Date.parse(time)).floor;
  // 2026-01-09 is a Friday; Zurich is an hour ahead of UTC.
  expect([
    at('2026-01-09T20:59:00Z'),
    at('2026-01-09T21:00:00Z'),
    at('2026-01-10T04:59:00Z'),
    at('2026-01-10T05:00:00Z'),
    at('2026-01-10T21:30:00Z'),
  ]).toEqual([0, 1, 1, 0, 0]);
});

it('a job that began and failed between two lists counts as a failed start, once', () => {
  const bench = new Bench();
  const [placed] = bench.models;
  const [place] = placed?.places ?? [];
  if (place === undefined) throw new Error('no place');
  const world = (jobs: ListedJob[]): FactoryWorld => ({
    config: bench.config,
    models: bench.models,
    clusters: new Map([['alps', { reachable: true, jobs }]]),
    demand: new Map(),
    nodes: [],
  });
  const { name } = withIntendedSubmissions(
    bench.memory,
    { kind: 'submit', model: LLAMA, place, count: 1, why: '' },
    'pool',
    NOW,
  );
  const listed: ListedJob[] = [{ id: '7', name, state: 'ended', ended: 'failed' }];
  const { ended } = observeJobs(bench.memory, world(listed), NOW + 2_000);
  expect(ended).toEqual([
    expect.objectContaining({ how: 'failed', job: expect.objectContaining({ id: '7', model: LLAMA }) }),
  ]);
  for (const one of ended) assessEnd(one, 'CUDA out of memory', bench.memory, world(listed), NOW + 2_000);
  expect(bench.memory.back_offs).toMatchObject({
    [startKey(LLAMA, 'alps', place.context)]: { failed: 1, log_tail: 'CUDA out of memory' },
  });
  expect(observeJobs(bench.memory, world(listed), NOW + 4_000).ended).toEqual([]);
});

it('jobs that served and ended while the factory was dead are no failed starts; a recipe that always fails still waits', () => {
  const bench = new Bench();
  const waiting = [{ model: LLAMA, waiting: 1 }];
  const jobs = ['1', '2'].map((id) => bench.job(LLAMA, id, 'pending'));
  bench.round(jobs, waiting);
  bench.now += 3_600_000;
  // One is reported as failed at its end, the other is not reported at all.
  const [first] = jobs;
  const gone = first === undefined ? [] : [{ ...first, state: 'ended' as const, ended: 'failed' as const }];
  for (let n = 0; n < 12; n++) bench.round(gone, waiting);
  expect(bench.ended.map(({ how, job }) => [job.id, how])).toEqual([
    ['1', 'failed'],
    ['2', 'vanished'],
  ]);
  expect(Object.values(bench.memory.back_offs)[0]).toMatchObject({ failed: 0, short: 1, resting: false });
});

it('rounds that take minutes, since each sbatch does, still see that a recipe fails, and it rests', () => {
  const bench = new Bench();
  const waiting = [{ model: LLAMA, waiting: 1 }];
  for (let n = 1; n <= 3; n++) {
    const job = bench.job(LLAMA, String(n));
    for (const listed of [job, { ...job, state: 'ended' as const, ended: 'failed' as const }]) {
      const before = bench.now;
      bench.now += 300_000;
      bench.round([listed], waiting, [], before - 15_000);
    }
  }
  expect(Object.values(bench.memory.back_offs)[0]).toMatchObject({ failed: 3, resting: true });
});

it('a job that began before the factory was dead and failed after it came back is a failed start', () => {
  const bench = new Bench();
  const waiting = [{ model: LLAMA, waiting: 1 }];
  const job = bench.job(LLAMA, '1');
  bench.round([{ ...job, state: 'pending' }], waiting);
  bench.now += 3_600_000;
  bench.round([job], waiting);
  bench.round([{ ...job, state: 'ended', ended: 'failed' }], waiting);
  expect(bench.ended.map(({ how }) => how)).toEqual(['failed']);
  expect(Object.values(bench.memory.back_offs)[0]).toMatchObject({ failed: 1 });
});
