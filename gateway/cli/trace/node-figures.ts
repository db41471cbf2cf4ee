/** Computes the figures of samples of nodes and clusters, in the order of time. */
import type { Chart, Series } from '../../../shared/text/svg-chart.ts';
import type { ClusterSample, NodeSample } from './node-samples.ts';
import type { Figure } from './paper-figures.ts';
import { CLASSES, type ModelClass } from './request-figures.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
/** Maximum minutes with samples: a year. */
const MOMENTS_MAX = 530_000;
/** Maximum last samples of nodes that are remembered. */
const NODES_MAX = 100_000;
/** Maximum pairs of models and GPU class. */
const GROUPS_MAX = 10_000;
/** Name of GPUs if the sample lacks their class. */
const UNKNOWN_GPU = 'GPU';

interface Moment {
  gpus: number;
  /** Idle GPUs of nodes, by class. */
  idle: Map<string, number>;
  /** Idle GPUs that the clusters report, by class. */
  free: Map<string, number>;
  /** By group: KV use of its nodes, and their power. */
  kv: Map<string, { count: number; sum: number }>;
  power: Map<string, number>;
}

/** Nodes with the same models and GPUs. */
interface Group {
  models: readonly string[];
  gpu: string;
  wattHours: number;
  tokens: number;
  /** Hours with an unknown number of tokens. */
  unknownHours: number;
}

export class NodeFigures {
  readonly #moments = new Map<number, Moment>();
  readonly #groups = new Map<string, Group>();
  readonly #last = new Map<string, { at: number; sample: NodeSample }>();
  readonly #counted = new Set<string>();
  /** The minute of the last sample. `#counted` has its sessions and clusters. */
  #minute: number | undefined;
  /** True if there were too many samples to remember all. */
  truncated = false;

  /**
   * Adds a node's sample. A node counts once a minute, even if it is sampled more often: `trace sample --every 10`
   * samples it six times a minute.
   */
  addNode(sample: NodeSample): void {
    const moment = this.#momentOf(sample.timestamp, `node ${sample.session}`);
    if (moment === undefined) return;
    const { gpus, busy, kv_use: kv, power_w: power } = sample;
    const name = this.#groupOf(sample);
    moment.gpus += gpus;
    const gpu = sample.gpu ?? UNKNOWN_GPU;
    moment.idle.set(gpu, (moment.idle.get(gpu) ?? 0) + (busy ? 0 : gpus));
    if (kv !== null) {
      const known = moment.kv.get(name) ?? { count: 0, sum: 0 };
      moment.kv.set(name, { count: known.count + 1, sum: known.sum + kv });
    }
    if (power !== null) moment.power.set(name, (moment.power.get(name) ?? 0) + power);
    this.#addEnergy(sample);
  }

  addCluster({ timestamp, cluster, gpu, idle_gpus: idle }: ClusterSample): void {
    const moment = this.#momentOf(timestamp, `cluster ${cluster} ${gpu ?? ''}`);
    const name = gpu ?? UNKNOWN_GPU;
    moment?.free.set(name, (moment.free.get(name) ?? 0) + idle);
  }

  /** Returns undefined if this minute already has a sample of the same name. */
  #momentOf(timestamp: string, name: string): Moment | undefined {
    const minute = Math.floor(Date.parse(timestamp) / MINUTE_MS) * MINUTE_MS;
    if (minute !== this.#minute) this.#counted.clear();
    this.#minute = minute;
    if (this.#counted.has(name)) return undefined;
    this.#counted.add(name);
    const known = this.#moments.get(minute);
    if (known !== undefined) return known;
    if (this.#moments.size >= MOMENTS_MAX) {
      this.truncated = true;
      return undefined;
    }
    const made: Moment = { gpus: 0, idle: new Map(), free: new Map(), kv: new Map(), power: new Map() };
    this.#moments.set(minute, made);
    return made;
  }

  #groupOf({ models, gpu }: NodeSample): string {
    const name = `${gpu ?? UNKNOWN_GPU}\n${models.join('\n')}`;
    if (!this.#groups.has(name)) {
      if (this.#groups.size >= GROUPS_MAX) {
        this.truncated = true;
        return this.#groups.keys().next().value ?? '';
      }
      this.#groups.set(name, { models, gpu: gpu ?? UNKNOWN_GPU, wattHours: 0, tokens: 0, unknownHours: 0 });
    }
    return name;
  }

  /** A sample holds until the node's next one, but at most for an hour, so that gaps in the sampling are not counted. */
  #addEnergy(sample: NodeSample): void {
    const at = Date.parse(sample.timestamp);
    const before = this.#last.get(sample.session);
    if (before !== undefined || this.#last.size < NODES_MAX) this.#last.set(sample.session, { at, sample });
    else this.truncated = true;
    if (before === undefined || before.sample.power_w === null) return;
    const hours = Math.min(1, Math.max(0, (at - before.at) / HOUR_MS));
    const group = this.#groups.get(this.#groupOf(before.sample));
    if (group === undefined) return;
    group.wattHours += before.sample.power_w * hours;
    const { tokens_per_second: tokens, busy } = before.sample;
    if (tokens === null && busy) group.unknownHours += hours;
    else group.tokens += (tokens ?? 0) * hours * 3_600;
  }

  figures(classOf: (model: string) => ModelClass): Figure[] {
    const moments = [...this.#moments].sort(([a], [b]) => a - b);
    if (moments.length === 0) return [];
    const kindOf = (group: string): ModelClass =>
      this.#groups.get(group)?.models.some((model) => classOf(model) === 'reasoning') === true ? 'reasoning' : 'other';
    return [idleGpus(moments), ...kvUse(moments, kindOf), ...this.#energy(moments, kindOf)];
  }

  #energy(moments: readonly (readonly [number, Moment])[], kindOf: (group: string) => ModelClass): Figure[] {
    const kinds = new Map<string, Group>();
    const kindName = (name: string) => {
      const { models = [], gpu = UNKNOWN_GPU } = this.#groups.get(name) ?? {};
      return `${models.length === 0 ? 'no model' : kindOf(name)}, ${gpu}`;
    };
    for (const [name, group] of this.#groups) {
      const known = kinds.get(kindName(name));
      kinds.set(kindName(name), known === undefined ? group : sumOf(known, group));
    }
    const series = [...kinds.keys()].flatMap((kind) => {
      const points = moments.flatMap(([at, { power }]) => {
        const of = [...power].filter(([name]) => kindName(name) === kind);
        return of.length === 0 ? [] : [[hoursOf(moments, at), of.reduce((sum, [, watts]) => sum + watts, 0)] as const];
      });
      return points.length === 0 ? [] : [{ name: kind, points }];
    });
    if (series.length === 0) return [];
    const watts = moments.flatMap(([, { power }]) =>
      power.size === 0 ? [] : [[...power.values()].reduce((sum, one) => sum + one, 0)],
    );
    const facts: Record<string, number> = {
      mean_w: watts.reduce((sum, one) => sum + one, 0) / watts.length,
      kwh: [...this.#groups.values()].reduce((sum, { wattHours }) => sum + wattHours, 0) / 1_000,
    };
    for (const [kind, { wattHours, tokens, unknownHours }] of kinds) {
      facts[`${kind}: kwh`] = wattHours / 1_000;
      // If the tokens of some hours are unknown, the quotient would be too high.
      if (tokens > 0 && unknownHours === 0)
        facts[`${kind}: kwh per million output tokens`] = wattHours / 1_000 / (tokens / 1e6);
    }
    return [{ name: 'energy', charts: [{ title: 'Power', x: 'hours', y: 'W', series }], facts }];
  }
}

const sumOf = (a: Group, b: Group): Group => ({
  ...a,
  wattHours: a.wattHours + b.wattHours,
  tokens: a.tokens + b.tokens,
  unknownHours: a.unknownHours + b.unknownHours,
});

const hoursOf = (moments: readonly (readonly [number, Moment])[], at: number) =>
  (at - (moments[0]?.[0] ?? at)) / HOUR_MS;
const meanOf = ({ points }: Series) => points.reduce((sum, [, y]) => sum + y, 0) / Math.max(1, points.length);

function idleGpus(moments: readonly (readonly [number, Moment])[]): Figure {
  const line = (name: string, value: (one: Moment) => number | undefined): Series => ({
    name,
    points: moments.flatMap(([at, one]) => {
      const y = value(one);
      return y === undefined ? [] : [[hoursOf(moments, at), y] as const];
    }),
  });
  const sum = ({ idle }: Moment) => [...idle.values()].reduce((all, one) => all + one, 0);
  const byClass = (name: string, of: (one: Moment) => Map<string, number>) =>
    [...new Set(moments.flatMap(([, one]) => [...of(one).keys()]))]
      .sort()
      // A minute without any report has no point. In another one, a class that is not reported has no idle GPUs.
      .map((gpu) => line(`${name} ${gpu}`, (one) => (of(one).size === 0 ? undefined : (of(one).get(gpu) ?? 0))));
  const all = line('GPUs', (one) => one.gpus);
  const classes = [...byClass('idle', ({ idle }) => idle), ...byClass('free in clusters,', ({ free }) => free)];
  const total = meanOf(all);
  const facts: Record<string, number> = { idle_share: total === 0 ? 0 : meanOf(line('', sum)) / total };
  for (const one of classes) facts[`${one.name}, mean`] = meanOf(one);
  return {
    name: 'idle-gpus',
    charts: [{ title: 'Idle GPUs', x: 'hours', y: 'GPUs', series: [all, ...classes] }],
    facts,
  };
}

function kvUse(moments: readonly (readonly [number, Moment])[], kindOf: (group: string) => ModelClass): Figure[] {
  const facts: Record<string, number> = {};
  const series = CLASSES.flatMap((kind): Series[] => {
    const points = moments.flatMap(([at, { kv }]) => {
      const of = [...kv].filter(([name]) => kindOf(name) === kind).map(([, one]) => one);
      const count = of.reduce((sum, one) => sum + one.count, 0);
      return count === 0 ? [] : [[hoursOf(moments, at), of.reduce((sum, one) => sum + one.sum, 0) / count] as const];
    });
    if (points.length === 0) return [];
    facts[`mean, ${kind}`] = meanOf({ name: kind, points });
    return [{ name: kind, points }];
  });
  const charts: Chart[] = [{ title: 'KV cache', x: 'hours', y: 'share in use', series }];
  return series.length === 0 ? [] : [{ name: 'kv-use', charts, facts }];
}
