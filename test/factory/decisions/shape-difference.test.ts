/** A plan with shapes, on idle agents of two GPUs: replicas change their parallelism, their GPUs and their model. */

import { expect, it } from 'vitest';
import { parseConfig } from '../../../factory/config/read-config.ts';
import { decideActions } from '../../../factory/decisions/decide-actions.ts';
import { type FactoryAction, type FactoryWorld, placedModels } from '../../../factory/decisions/factory-world.ts';
import { recordFailure } from '../../../factory/decisions/launch-back-off.ts';
import { observeJobs } from '../../../factory/decisions/observe-jobs.ts';
import { emptyMemory, jobName } from '../../../factory/decisions/persisted-state.ts';
import { noDemand, type PlannedShape } from '../../../factory/demand/demand-source.ts';
import type { ListedJob } from '../../../node/batch-systems/batch-system.ts';
import type { ServingNode } from '../../../shared/factory/factory-exchange.ts';

const [A, B] = ['org/a', 'org/b'];
const engines = (recipe: string) =>
  [
    ['prompts', 'tp = 2'],
    ['answers', 'tp = 1, pp = 2'],
  ].map(
    ([template, parameters]) => `[[recipes.${recipe}.engines]]
gpu = ["A100", "H100"]
gpus = 2
template = "${template}"
parameters = { ${parameters} }
`,
  );
const CONFIG = `factory = "pool"
gateway = "http://gateway"
token_file = "token"
state = "state"
[clusters.idle]
launcher = "agents"
key_file = "key"
max_pending = 4
[[clusters.idle.pools]]
name = "a100"
gpu = "A100"
gpus_per_node = 2
[[clusters.idle.pools]]
name = "h100"
gpu = "H100"
gpus_per_node = 2
[recipes.a]
weights = "${A}"
${engines('a').join('')}
[recipes.b]
weights = "${B}"
${engines('b').join('')}
[models."${A}"]
recipe = "a"
max = 4
[models."${B}"]
recipe = "b"
max = 4
`;
const ROUND_MS = 15_000;
/** Rounds from an order until the engine serves. */
const LOADS = 2;

const prompts = (replicas: number, more: Partial<PlannedShape> = {}): PlannedShape => ({
  tp: 2,
  pp: 1,
  replicas,
  ...more,
});
const answers = (replicas: number): PlannedShape => ({ tp: 1, pp: 2, replicas });

interface Job {
  id: string;
  name: string;
  model: string;
  pool: string;
  template: string;
  age: number;
}

/** Agents that obey: an order serves after `LOADS` rounds, and a drained replica is gone after one. */
class Site {
  readonly memory = emptyMemory(0);
  readonly models;
  readonly config;
  nodes: Record<string, number> = { a100: 4 };
  jobs: Job[] = [];
  plan: Record<string, PlannedShape[]> = {};
  wave = 1;
  now = 0;
  /** Ready replicas of model A after each round, the fewest. */
  fewest = Number.POSITIVE_INFINITY;

  constructor() {
    const read = parseConfig(CONFIG);
    if ('faults' in read) throw new Error(JSON.stringify(read.faults));
    this.config = read.config;
    this.models = placedModels(read.config);
  }

  run(rounds: number): FactoryAction[] {
    this.fewest = Number.POSITIVE_INFINITY;
    return Array.from({ length: rounds }, () => this.#round()).flat();
  }

  /** `a100 prompts` and its count. */
  count(model: string): Record<string, number> {
    const found: Record<string, number> = {};
    for (const { model: of, pool, template } of this.jobs)
      if (of === model) found[`${pool} ${template}`] = (found[`${pool} ${template}`] ?? 0) + 1;
    return found;
  }

  #round(): FactoryAction[] {
    const capacity = Object.entries(this.nodes).map(([pool, count]) => ({
      pool,
      idle: 2 * (count - this.jobs.filter((job) => job.pool === pool).length),
    }));
    const listed = this.jobs.map(({ id, name }): ListedJob => ({ id, name, state: 'running' }));
    const wanted = (model: string) => (this.plan[model] ?? []).reduce((sum, { replicas }) => sum + replicas, 0);
    const world: FactoryWorld = {
      config: this.config,
      models: this.models,
      clusters: new Map([['idle', { reachable: true, jobs: listed, capacity }]]),
      demand: new Map(
        [A, B].map((model) => [model, { ...noDemand(model), wanted: [{ from: 'the plan', replicas: wanted(model) }] }]),
      ),
      planned: new Map(Object.entries(this.plan).map(([model, shapes]) => [model, { shapes, wave: this.wave }])),
      nodes: this.jobs.map(nodeOf),
      before: this.now - ROUND_MS,
    };
    observeJobs(this.memory, world, this.now);
    const { actions } = decideActions(this.memory, world, this.now);
    for (const action of actions) this.#act(action);
    for (const job of this.jobs) job.age++;
    this.fewest = Math.min(this.fewest, this.jobs.filter((job) => job.model === A && job.age > LOADS).length);
    this.now += ROUND_MS;
    return actions;
  }

  #act(action: FactoryAction): void {
    if (action.kind === 'drain') this.jobs = this.jobs.filter(({ id }) => id !== action.job);
    if (action.kind !== 'submit') return;
    const { pool, context, engine } = action.place;
    for (let n = 0; n < action.count; n++) {
      const name = jobName('pool', context, this.memory.next++);
      const job = {
        id: `${name}-0`,
        name,
        model: action.model,
        pool: pool.name,
        template: engine.template ?? '',
        age: 0,
      };
      this.jobs.push(job);
    }
  }
}

const nodeOf = ({ id, age, model }: Job): ServingNode => ({
  session: `session-${id}`,
  job: id,
  model,
  state: age > LOADS ? 'ready' : 'loading',
  // Always busy: nothing ends because it is idle.
  in_flight: 1,
  idle_ms: 0,
  labels: { 'otela.deployment': id },
});

it('changes the parallelism of busy replicas one at a time, and of as many as the plan lets change', () => {
  for (const wave of [1, 2]) {
    const site = new Site();
    site.wave = wave;
    site.plan = { [A]: [prompts(3), answers(1)] };
    site.run(20);
    expect(site.count(A)).toEqual({ 'a100 prompts': 3, 'a100 answers': 1 });
    site.plan = { [A]: [prompts(1), answers(3)] };
    site.run(18 / wave);
    expect(site.count(A)).toEqual({ 'a100 prompts': 1, 'a100 answers': 3 });
    expect(site.fewest).toBe(4 - wave);
    expect(site.run(10)).toEqual([]);
  }
});

it('has as many replicas as planned after a change for which a node was idle', () => {
  const site = new Site();
  site.plan = { [A]: [prompts(3)] };
  site.run(20);
  site.plan = { [A]: [prompts(1), answers(2)] };
  site.run(40);
  expect(site.count(A)).toEqual({ 'a100 prompts': 1, 'a100 answers': 2 });
  site.plan = { [A]: [prompts(1), answers(3)] };
  expect(site.run(1)).toMatchObject([{ kind: 'submit' }]);
});

it('chooses the kind of GPU of the plan, though the file names another pool first', () => {
  const site = new Site();
  site.nodes = { a100: 2, h100: 2 };
  site.plan = { [A]: [prompts(2, { gpu: 'H100' })], [B]: [prompts(2, { gpu: 'A100' })] };
  site.run(20);
  expect([site.count(A), site.count(B)]).toEqual([{ 'h100 prompts': 2 }, { 'a100 prompts': 2 }]);
});

it('gives the nodes of a busy model that has more replicas than planned to the model that lacks them', () => {
  const site = new Site();
  site.plan = { [A]: [prompts(4)] };
  site.run(20);
  site.plan = { [A]: [prompts(2)], [B]: [answers(2)] };
  site.run(40);
  expect([site.count(A), site.count(B)]).toEqual([{ 'a100 prompts': 2 }, { 'a100 answers': 2 }]);
  expect(site.run(10)).toEqual([]);
});

it('ends no replica for a shape whose starts fail', () => {
  const site = new Site();
  site.plan = { [A]: [prompts(4)] };
  site.run(20);
  const place = site.models[0]?.further[0];
  if (place === undefined) throw new Error('no further engine');
  for (let n = 0; n < 3; n++)
    recordFailure(
      site.memory,
      'failed',
      { model: A, cluster: 'idle', context: place.context, reason: 'it does not start' },
      site.config.guest,
      site.now,
    );
  site.plan = { [A]: [answers(4)] };
  expect(site.run(10)).toEqual([]);
  expect(site.count(A)).toEqual({ 'a100 prompts': 4 });
});

it('keeps the number of replicas of a plan with a shape that no engine has', () => {
  const site = new Site();
  site.plan = { [A]: [{ tp: 8, pp: 1, replicas: 3 }] };
  site.run(20);
  expect(site.count(A)).toEqual({ 'a100 prompts': 3 });
});
