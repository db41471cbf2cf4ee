/** `otela-plan plan` with the nodes of a network, and with an operator's measurements. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { ACCEPTS_LABEL } from '../../shared/deployment/deployment-labels.ts';
import { GPUS_MAX } from '../../shared/lattice/node-record.ts';
import { node, StandInGateway, serving } from './support/mock-gateway.ts';
import { otelaPlan } from './support/small.ts';

const MODEL = 'meta-llama/Llama-2-13b-hf';
const lengths = (mean: number) => ({ mean, deviation: mean / 2, p50: mean, p95: 2 * mean });
const ROW = { model: MODEL, requests: 1200, requests_per_second: 2, input: lengths(500), output: lengths(100) };
const gateway = new StandInGateway();
const keys = mkdtempSync(join(tmpdir(), 'otela-live-'));
let argv: string[] = [];
beforeAll(async () => {
  await gateway.open();
  writeFileSync(join(keys, 'key'), 'operator-key\n', { mode: 0o600 });
  argv = ['--gateway', gateway.url, '--key-file', join(keys, 'key')];
});
beforeEach(() => Object.assign(gateway, { nodes: [], workload: [ROW] }));
afterAll(async () => {
  await gateway.close();
  rmSync(keys, { recursive: true, force: true });
});

describe('a plan', () => {
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
    expect((await otelaPlan(...argv)).log).toMatch(/there is no model "who\/knows"/);
    const rows = file('m.csv', 'model,gpu,tp,requests_per_s\nwho/knows,A100-80-SXM,2,2\n');
    const { code, out } = await otelaPlan(...argv, '--measured', rows);
    // 85 % of 2 requests/s each: three replicas.
    expect(out).toMatch(/who\/knows +3 +2 × A100-80-SXM each/);
    expect(code).toBe(0);
    const elsewhere = file('e.csv', 'model,gpu,tp,requests_per_s\nwho/knows,H100-SXM,2,2\n');
    expect((await otelaPlan(...argv, '--measured', elsewhere)).log).toMatch(
      /there is no measurement on a GPU of the inventory/,
    );
    rmSync(folder, { recursive: true });
  });

  it('plans from the live network without starting anything', async () => {
    gateway.nodes = [serving('aaaaaaaaaaaaaaaaaaaaaaaaaa', MODEL), node('bbbbbbbbbbbbbbbbbbbbbbbbbb')];
    const { code, out } = await otelaPlan('plan', '--live', ...argv, '--duration', '10');
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
      ...argv,
      '--duration',
      '0',
      '--objective',
      'throughput',
      '--time-limit',
      '5',
    );
    expect(log).toMatch(new RegExp(`claims ${GPUS_MAX + 1} GPUs: skipped`));
    expect(log).toMatch(/rare kinds of node are skipped/);
    expect(out).toMatch(/Llama-2-13b-hf/);
  });
});
