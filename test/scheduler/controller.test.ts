/** `otela-plan apply`: what runs is brought to the plan, job by job. */
import { chmodSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { applyCommand, type Outside } from '../../scheduler/cli/apply.ts';
import { readState } from '../../scheduler/controller/state.ts';
import { SchedulerError } from '../../scheduler/errors.ts';
import { ACCEPTS_LABEL } from '../../shared/deployment/labels.ts';
import { GPUS_MAX } from '../../shared/lattice/node.ts';
import type { Io } from '../../shared/terminal/io.ts';
import { otelaPlan } from './support/small.ts';
import { node, serving } from './support/stand-in-gateway.ts';
import { Jobs, MODEL, ROW, Workplace } from './support/workplace.ts';

const place = new Workplace();
const { gateway } = place;
beforeAll(() => place.open());
beforeEach(() => place.renew());
afterAll(() => place.close());

describe('the controller', () => {
  async function apply(more: string[] = [], outside: Outside = {}): Promise<{ code: number; out: string }> {
    const lines: string[] = [];
    const io: Io = { out: (text) => void lines.push(text), log: (line) => void lines.push(line) };
    let code: number;
    try {
      code = await applyCommand([...place.argv, ...more], io, { launcher: place.jobs, ...outside });
    } catch (error) {
      if (!(error instanceof SchedulerError)) throw error;
      lines.push(error.message);
      code = -1;
    }
    return { code, out: lines.join('\n') };
  }

  it('changes nothing without --yes, and says what it would do', async () => {
    const { code, out } = await apply();
    expect(code).toBe(0);
    expect(out).toMatch(/would start meta-llama\/Llama-2-13b-hf TP \d on a100: the plan has \d+ of/);
    expect(out).toMatch(/dry run/);
    expect(place.jobs.scripts.size).toBe(0);
    expect(readState(place.state).jobs).toEqual([]);
  });

  it('submits what is missing from the template, once', async () => {
    await apply(['--yes']);
    const started = place.jobs.scripts.size;
    expect(started).toBeGreaterThan(0);
    expect([...place.jobs.scripts.values()][0]).toMatch(
      /--partition=gpu[\s\S]*vllm serve meta-llama\/Llama-2-13b-hf --tensor-parallel-size \d/,
    );
    expect(statSync(place.state).mode & 0o077).toBe(0);
    const { out } = await apply(['--yes']);
    expect(out).toMatch(/nothing to change/);
    expect(place.jobs.scripts.size).toBe(started);
  });

  it('starts what the plan spreads over pipelines or pairs with the flags that say so, and knows it again', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'otela-plan-'));
    const file = (name: string, content: string) => {
      writeFileSync(join(folder, name), content);
      return join(folder, name);
    };
    const pools = [{ id: 'l40s', gpu: 'L40S', nodes: 1, gpus_per_node: 8, values: { partition: 'gpu' } }];
    const lengths = { input: { mean: 2000, sd: 500 }, output: { mean: 200, sd: 50 } };
    const models = [{ model: 'Llama-3.3-70B-Instruct', rate: 1.5, weights: 'fp8', ...lengths, class: 'batch' }];
    const argv = [
      ...['--inventory', file('inventory.json', JSON.stringify({ pools }))],
      ...['--workload', file('workload.json', JSON.stringify({ models })), '--parallelism', 'pipeline'],
      ...['--objective', 'throughput', '--yes'],
    ];
    const told = file('told', '#!/bin/bash\n#SBATCH --gres=gpu:{{gpus}}\nvllm serve {{model}} {{vllm_parallelism}}\n');
    const first = await apply(['--slurm', told, ...argv]);
    expect(first.out).toContain('TP 1 × PP 4');
    const [script] = [...place.jobs.scripts.values()];
    expect(script).toContain(
      'gpu:4\nvllm serve meta-llama/Llama-3.3-70B-Instruct --tensor-parallel-size 1 --pipeline-parallel-size 4',
    );
    expect((await apply(['--slurm', told, ...argv])).out).toContain('nothing to change');

    const tensorsOnly = file(
      'tensors',
      '#!/bin/bash\n#SBATCH --gres=gpu:{{tp}}\nvllm serve {{model}} --tensor-parallel-size {{tp}}\n',
    );
    const again = await apply(['--slurm', tensorsOnly, ...argv, '--state', join(folder, 'other.json')]);
    expect(again.out).not.toContain('PP');
    rmSync(folder, { recursive: true });
  });

  it('starts more for more demand, and stops none for less unless told to', async () => {
    await apply(['--yes']);
    const few = place.jobs.alive.size;
    gateway.workload = [{ ...ROW, requests_per_second: 12 }];
    await apply(['--yes']);
    const many = place.jobs.alive.size;
    expect(many).toBeGreaterThan(few);
    gateway.workload = [{ ...ROW, requests_per_second: 1 }];
    await apply(['--yes']);
    expect(place.jobs.alive.size).toBe(many);
    const { out } = await apply(['--yes', '--reclaim']);
    expect(out).toMatch(/done: stop job/);
    expect(place.jobs.alive.size).toBeLessThan(many);
  });

  it("leaves others' nodes alone, counts on them and shows idle ones", async () => {
    gateway.nodes = [
      serving('aaaaaaaaaaaaaaaaaaaaaaaaaa', MODEL),
      node('bbbbbbbbbbbbbbbbbbbbbbbbbb'),
      serving('cccccccccccccccccccccccccc', 'somebody/elses-model'),
    ];
    const { out } = await apply(['--yes', '--reclaim']);
    expect(out).toMatch(/network: A100-80-SXM x4/);
    expect(out).toMatch(/idle: node bbbbbbbb/);
    expect(place.jobs.scripts.size).toBe(0);
    expect(place.jobs.stopped).toEqual([]);
  });

  it('goes back to what was wanted before, and stops everything of its own on request', async () => {
    await apply(['--yes']);
    const before = [...place.jobs.alive.keys()];
    gateway.workload = [{ ...ROW, requests_per_second: 12 }];
    await apply(['--yes']);
    expect(place.jobs.alive.size).toBeGreaterThan(before.length);
    await apply(['--yes', '--rollback']);
    expect([...place.jobs.alive.keys()].length).toBe(before.length);
    await apply(['--yes', '--stop']);
    expect(place.jobs.alive.size).toBe(0);
  });

  it('starts a job that died again, and gives up after three in a row until a person says --retry', async () => {
    await apply(['--yes']);
    for (let death = 0; death < 3; death++) {
      place.jobs.alive.clear();
      const { out } = await apply(['--yes']);
      expect(out).toMatch(/ended unasked/);
    }
    const { out } = await apply(['--yes']);
    expect(out).toMatch(/not started again without --retry/);
    const tried = place.jobs.scripts.size;
    await apply(['--yes', '--retry']);
    expect(place.jobs.scripts.size).toBeGreaterThan(tried);
  });

  it('a node that serves forgives the failures of its placement', async () => {
    await apply(['--yes']);
    place.jobs.alive.clear();
    await apply(['--yes']);
    expect(readState(place.state).failures.length).toBe(1);
    const [id] = [...place.jobs.alive.keys()];
    gateway.nodes = [serving('dddddddddddddddddddddddddd', MODEL, id)];
    await apply(['--yes']);
    expect(readState(place.state).failures).toEqual([]);
  });

  it('a Slurm that does not answer is no evidence that its jobs are gone', async () => {
    await apply(['--yes']);
    const known = readState(place.state).jobs;
    place.jobs.unknown = true;
    expect((await apply(['--yes'])).out).toMatch(/Unable to contact slurm/);
    expect(readState(place.state).jobs).toEqual(known);
  });

  it('reports a job that cannot be submitted and does the rest next time', async () => {
    place.jobs.failing = true;
    const { code, out } = await apply(['--yes']);
    expect(code).toBe(70);
    expect(out).toMatch(/FAILED: start .*QOSMaxSubmitJobPerUserLimit/);
    place.jobs.failing = false;
    await apply(['--yes']);
    expect(place.jobs.alive.size).toBeGreaterThan(0);
  });

  it('a controller that dies between two jobs remembers the first', async () => {
    gateway.workload = [{ ...ROW, requests_per_second: 12 }];
    const dying = new Jobs();
    const start = dying.start.bind(dying);
    dying.start = async (script) => {
      if (dying.scripts.size === 1) throw new TypeError('killed');
      return start(script);
    };
    await apply(['--yes'], { launcher: dying });
    expect(readState(place.state).jobs.length).toBe(1);
  });

  it('two controllers do not share a state', async () => {
    writeFileSync(`${place.state}.lock`, String(process.pid));
    expect((await apply(['--yes'])).out).toMatch(/another controller \(process \d+\)/);
    // The lock of one that is gone is no lock.
    writeFileSync(`${place.state}.lock`, '999999999');
    expect((await apply(['--yes'])).code).toBe(0);
  });

  it('a damaged state is an error, not an empty one', async () => {
    writeFileSync(place.state, '{"version":1,"jobs":[');
    expect((await apply(['--yes'])).out).toMatch(/damaged/);
    expect(place.jobs.scripts.size).toBe(0);
  });

  it('sends the weights of the sessions that serve', async () => {
    gateway.nodes = [serving('aaaaaaaaaaaaaaaaaaaaaaaaaa', MODEL), serving('bbbbbbbbbbbbbbbbbbbbbbbbbb', MODEL)];
    await apply(['--yes', '--weights']);
    expect(gateway.weights[0]?.path).toBe(`/admin/routing/${encodeURIComponent(MODEL)}`);
    expect(gateway.weights[0]?.body).toEqual({
      weights: [
        { session: 'aaaaaaaaaaaaaaaaaaaaaaaaaa', weight: 0.5 },
        { session: 'bbbbbbbbbbbbbbbbbbbbbbbbbb', weight: 0.5 },
        // Later calls are not left without requests.
        { weight: 0.5 },
      ],
    });
  });

  it.each<[string, () => void, RegExp]>([
    ['that is down', () => Object.assign(gateway, { down: true }), /answers 503/],
    ['that answers something else', () => Object.assign(gateway, { nodes: [{ session: 1 }] }), /does not understand/],
    [
      'whose load is no number',
      () => Object.assign(gateway, { workload: [{ ...ROW, requests_per_second: 'many' }] }),
      /does not understand/,
    ],
  ])('a gateway %s is an error and starts nothing', async (_, make, message) => {
    make();
    expect((await apply(['--yes'])).out).toMatch(message);
    expect(place.jobs.scripts.size).toBe(0);
  });

  it('names that no model can have are left out, and nothing else is', async () => {
    place.gateway.workload = [ROW, ...['x'.repeat(1024), ''].map((model) => ({ ...ROW, model }))];
    const { code, out } = await apply();
    expect(code).toBe(0);
    expect(out).toMatch(/^x{256} is asked for but left out/m);
    expect(out).toContain(MODEL);
  });

  it('a model that the catalogue does not know is left out, with its name', async () => {
    gateway.workload = [ROW, { ...ROW, model: 'who/knows' }];
    expect((await apply()).out).toMatch(/who\/knows is asked for but left out/);
  });

  it('a model that the catalogue does not know is planned by what its replicas serve, and grows when that is not enough', async () => {
    const served = [
      serving('aaaaaaaaaaaaaaaaaaaaaaaaaa', 'who/knows'),
      serving('bbbbbbbbbbbbbbbbbbbbbbbbbb', 'who/knows'),
    ];
    gateway.nodes = served;
    gateway.workload = [ROW, { ...ROW, model: 'who/knows', requests_per_second: 6 }];
    const enough = await apply();
    expect(enough.out).toMatch(
      /who\/knows is not in the catalogue: planned by what its replicas serve now, 3.00 requests\/s each/,
    );
    expect(enough.out).toMatch(/who\/knows +2 +4 × A100-80-SXM each/);
    expect(enough.out).not.toMatch(/would start who\/knows/);
    expect(enough.out).toContain('its latency is not planned');
    // A third is wanted: two did all they were seen to do, and requests were refused.
    gateway.workload = [ROW, { ...ROW, model: 'who/knows', requests_per_second: 6, unserved: 1500 }];
    gateway.windowMs = 600_000;
    expect((await apply()).out).toMatch(/would start who\/knows TP 4 on a100/);
    const live = await otelaPlan('plan', '--live', ...place.argv.slice(0, 4), '--duration', '10');
    expect(live.out).toMatch(/who\/knows +2 /);
  });

  it('a model that the catalogue does not know is planned by the operator’s measured rows, from files too', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'otela-plan-'));
    const file = (name: string, content: string) => {
      writeFileSync(join(folder, name), content);
      return join(folder, name);
    };
    const workload = { models: [{ model: 'who/knows', rate: 5, input: 500, output: 100 }] };
    const argv = [
      ...[
        'plan',
        '--inventory',
        file('i.json', JSON.stringify({ pools: [{ gpu: 'A100-80-SXM', nodes: 2, gpus_per_node: 4 }] })),
      ],
      ...['--workload', file('w.json', JSON.stringify(workload))],
    ];
    expect((await otelaPlan(...argv)).log).toMatch(/no model is called "who\/knows"/);
    const rows = file('m.csv', 'model,gpu,tp,requests_per_s\nwho/knows,A100-80-SXM,2,2\n');
    const { code, out } = await otelaPlan(...argv, '--measured', rows);
    // 85 % of 2 requests/s each: three replicas.
    expect(out).toMatch(/who\/knows +3 +2 × A100-80-SXM each/);
    expect(code).toBe(0);
    const elsewhere = file('e.csv', 'model,gpu,tp,requests_per_s\nwho/knows,H100-SXM,2,2\n');
    expect((await otelaPlan(...argv, '--measured', elsewhere)).log).toMatch(/measured on no GPU that is here/);
    rmSync(folder, { recursive: true });
  });

  it('plans from the live network without starting anything', async () => {
    gateway.nodes = [serving('aaaaaaaaaaaaaaaaaaaaaaaaaa', MODEL), node('bbbbbbbbbbbbbbbbbbbbbbbbbb')];
    const { code, out } = await otelaPlan('plan', '--live', ...place.argv.slice(0, 4), '--duration', '10');
    expect(code).toBe(0);
    expect(out).toMatch(/Llama-2-13b-hf +1 +4 × A100-80-SXM each +A100-80-SXM x4/);
  });

  it('a node with more GPUs than any has, and hundreds of kinds of node, do not hold up the plan', async () => {
    const gpus = (count: number) => ({
      labels: { [ACCEPTS_LABEL]: 'vllm' },
      hardware: { gpus: [{ class: 'A100', vram_mib: 81_920, count }], cpus: 1, memory_mib: 1 },
    });
    const id = (n: number) => `a${n.toString(36).replace(/[0189]/g, 'z')}`.padEnd(26, 'b');
    gateway.nodes = [
      node('giant', gpus(GPUS_MAX + 1)),
      ...Array.from({ length: 1000 }, (_, n) => node(id(n), gpus((n % GPUS_MAX) + 1))),
      serving('served', MODEL),
      serving('served-too', MODEL),
    ];
    const { log, out } = await otelaPlan(
      'plan',
      '--live',
      ...place.argv.slice(0, 4),
      '--duration',
      '0',
      '--objective',
      'throughput',
      '--time-limit',
      '5',
    );
    expect(log).toMatch(new RegExp(`claims ${GPUS_MAX + 1} GPUs: left out`));
    expect(log).toMatch(/rare kinds of node are left out/);
    expect(out).toMatch(/Llama-2-13b-hf/);
  });

  it('a key that others may read is refused', async () => {
    const key = place.argv[3] ?? '';
    chmodSync(key, 0o644);
    expect((await apply()).out).toMatch(/chmod 600/);
  });
});
