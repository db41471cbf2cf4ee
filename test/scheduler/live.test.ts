/** Queries to a gateway and to Slurm, and the plans made from the results. */
import { describe, expect, it } from 'vitest';
import { burstiness, variation } from '../../scheduler/live/burstiness.ts';
import { liveInventory, liveNodes } from '../../scheduler/live/live-nodes.ts';
import { liveWorkload } from '../../scheduler/live/live-workload.ts';
import type { PlannerGateway } from '../../scheduler/live/planner-gateway.ts';
import { slurmInventory } from '../../scheduler/live/sinfo.ts';
import { ACCEPTS_LABEL } from '../../shared/deployment/deployment-labels.ts';
import { node } from './support/mock-gateway.ts';
import { catalogue } from './support/small.ts';

const MODEL = 'meta-llama/Llama-3.1-8B-Instruct';

/** Answers by path; a workload by the minutes of its window. */
function gateway(nodes: object[], requests: (minutes: number) => number = () => 0): PlannerGateway {
  return {
    url: 'http://gateway',
    get: (path) => {
      if (path === '/v1/registry/nodes') return Promise.resolve({ data: nodes });
      const minutes = Number(/window=(\d+)m/.exec(path)?.[1]);
      const spread = { mean: 100, deviation: 50 };
      const row = { model: MODEL, requests: requests(minutes), requests_per_second: 1, input: spread, output: spread };
      return Promise.resolve({ window_ms: minutes * 60_000, data: [row] });
    },
    put: () => Promise.reject(new Error('nothing is changed')),
  };
}

describe('the live inventory', () => {
  it('leaves idle nodes out whose agents take no deployments, and says how many', async () => {
    const said: string[] = [];
    const accepting = node('accepts', { labels: { [ACCEPTS_LABEL]: 'vllm' } });
    const serving = node('serves', { models: [{ id: MODEL, state: 'ready' }] });
    const nodes = await liveNodes(gateway([accepting]), catalogue, () => {});
    expect(nodes[0]?.accepts).toBe(true);
    const found = await liveInventory(gateway([node('closed'), accepting, serving]), catalogue, (line) =>
      said.push(line),
    );
    expect(found.pools.map(({ nodes: many }) => many)).toEqual([2]);
    expect(said.join()).toMatch(/1 idle nodes are skipped: their agents do not accept deployments/);
  });

  it('leaves out a node whose GPU is a part of one', async () => {
    const said: string[] = [];
    const slice = { class: 'A100', name: 'NVIDIA A100-SXM4-80GB MIG 3g.40gb', vram_mib: 40_960 };
    const nodes = [node('slice', { hardware: { gpus: [slice], cpus: 8, memory_mib: 1 } })];
    expect(await liveNodes(gateway(nodes), catalogue, (line) => said.push(line))).toEqual([]);
    expect(said.join()).toMatch(/MIG 3g\.40gb/);
  });

  it('keeps stable and volatile nodes apart', async () => {
    const serving = (id: string, tier: string) => node(id, { tier, models: [{ id: MODEL, state: 'ready' }] });
    const found = await liveInventory(gateway([serving('a', 'stable'), serving('b', 'volatile')]), catalogue, () => {});
    expect(found.pools.map(({ tier }) => tier).sort()).toEqual(['stable', 'volatile']);
    expect(new Set(found.pools.map(({ id }) => id)).size).toBe(2);
  });
});

describe('the live workload', () => {
  it.each([
    ['fp8', 'fp8'],
    ['awq_marlin', 'int4'],
    ['compressed-tensors', 'bf16'],
    ['mxfp4', 'mxfp4'],
  ])('counts with weights as the nodes store them: %s', async (quantization, precision) => {
    const served = node('a', { models: [{ id: MODEL, state: 'ready', quantization }] });
    const nodes = await liveNodes(gateway([served]), catalogue, () => {});
    const [demand] = await liveWorkload(gateway([]), catalogue, '10m', () => {}, nodes);
    expect(demand?.weights).toBe(precision);
  });

  it('is as bursty as the counts of the last minutes', async () => {
    const steady = await liveWorkload(
      gateway([], (minutes) => 60 * minutes),
      catalogue,
      '10m',
      () => {},
    );
    // All of it arrived seven minutes ago.
    const burst = await liveWorkload(
      gateway([], (minutes) => (minutes < 7 ? 0 : 600)),
      catalogue,
      '10m',
      () => {},
    );
    expect(steady[0]?.cv).toBeLessThan(1);
    expect(burst[0]?.cv).toBe(4);
  });

  it('of a gateway that tells no counts arrives as Poisson does', async () => {
    const silent: PlannerGateway = { ...gateway([]), get: () => Promise.resolve({ data: [{ model: MODEL }] }) };
    expect(await burstiness(silent, [MODEL], (name) => name)).toEqual(new Map());
  });

  it('few requests, and counts as Poisson gives them, tell no burst', () => {
    expect(variation([1, 0, 2, 0, 1, 0, 0, 3, 0, 1])).toBeUndefined();
    expect(variation([61, 52, 70, 58, 66, 49, 60, 63, 55, 68])).toBeUndefined();
    expect(variation([10, 150, 20, 90, 5, 200, 15, 80, 10, 120])).toBeGreaterThan(2);
  });
});

describe('the inventory of sinfo', () => {
  const line = (...cells: string[]) => cells.map((cell) => cell.padEnd(20)).join('|');
  const sinfo = [
    line('nid1', 'idle', 'gpu:a100:4(S:0-1)', 'gpu:a100:0(IDX:N/A)', 'normal*'),
    line('nid1', 'idle', 'gpu:a100:4(S:0-1)', 'gpu:a100:0(IDX:N/A)', 'debug'),
    line('nid2', 'mix', 'gpu:a100:4(S:0-1)', 'gpu:a100:3(IDX:0-2)', 'normal*'),
    line('nid3', 'alloc', 'gpu:a100:4(S:0-1)', 'gpu:a100:4(IDX:0-3)', 'normal*'),
    line('nid4', 'drain', 'gpu:a100:4(S:0-1)', 'gpu:a100:0(IDX:N/A)', 'normal*'),
    line('nid5', 'idle', 'gpu:gh200:4', 'gpu:gh200:0(IDX:N/A)', 'gh'),
    line('nid6', 'idle', 'gpu:voodoo2:2', 'gpu:voodoo2:0(IDX:N/A)', 'old'),
    line('nid7', 'idle', '(null)', 'gpu:0', 'cpu'),
  ].join('\n');

  it('has the GPUs that no job has, once each, with what fills a template', async () => {
    const said: string[] = [];
    const { pools } = await slurmInventory(
      catalogue,
      (text) => said.push(text),
      () => Promise.resolve(sinfo),
    );
    const free = Object.fromEntries(pools.map((pool) => [pool.id, pool.nodes * pool.gpusPerNode]));
    expect(free).toEqual({ 'normal a100 x4': 4, 'normal a100 x1': 1, 'gh gh200 x4': 4 });
    expect(pools[0]?.values).toEqual({ partition: 'normal', gres: 'a100' });
    expect(said.join()).toMatch(/voodoo2/);
  });

  it('counts nodes that are powered down or planned, and used GPUs without a type; no part of a GPU, none without a type', async () => {
    const said: string[] = [];
    const out = [
      line('n1', 'idle~', 'gpu:a100:4(S:0-1)', 'gpu:a100:0(IDX:N/A)', 'cloud'),
      line('n2', 'mix-', 'gpu:a100:4(S:0-1)', 'gpu:(null):3(IDX:0-2)', 'normal*'),
      line('n3', 'idle*', 'gpu:a100:4', 'gpu:a100:0', 'normal*'),
      line('n4', 'idle', 'gpu:a100_3g.20gb:2', 'gpu:a100_3g.20gb:0', 'slices'),
      line('n5', 'idle', 'gpu:8', 'gpu:(null):0(IDX:N/A)', 'bare'),
    ].join('\n');
    const { pools } = await slurmInventory(
      catalogue,
      (text) => said.push(text),
      () => Promise.resolve(out),
    );
    expect(pools.map((pool) => [pool.id, pool.nodes])).toEqual([
      ['cloud a100 x4', 1],
      ['normal a100 x1', 1],
    ]);
    expect(said.join()).toMatch(/a100_3g\.20gb .*gpu, without a type, /);
  });

  it('without a free GPU is an error', async () => {
    await expect(
      slurmInventory(
        catalogue,
        () => {},
        () => Promise.resolve(''),
      ),
    ).rejects.toThrow(/no node with a free GPU/);
  });
});
