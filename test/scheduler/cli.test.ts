import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT } from '../support/where.ts';
import { file, folder, INVENTORY, model, plan, workload } from './support/plan-files.ts';
import { otelaPlan } from './support/small.ts';

describe('otela-plan', () => {
  it('prints a plan with weights, latencies and reasons', async () => {
    const { code, out } = await plan(INVENTORY, workload(model()));
    expect(code).toBe(0);
    expect(out).toMatch(/Llama-3.1-8B-Instruct +1 +1 × A100-80-SXM each +a/);
    expect(out).toMatch(/first token/);
    expect(out).toMatch(/\nwhy\n/);
  });

  it('prints the same plan as JSON, to read by programs', async () => {
    const { code, out } = await plan(INVENTORY, workload(model()), '--json');
    expect(code).toBe(0);
    const parsed = JSON.parse(out);
    const shares = parsed.placements.map(({ share }: { share: number }) => share);
    expect(shares.reduce((sum: number, share: number) => sum + share, 0)).toBeCloseTo(1);
    expect(parsed.simulated.models[0].latency.mean).toBeGreaterThan(0);
  });

  it('prints what can be named', async () => {
    expect((await otelaPlan('catalogue')).out).toMatch(/GH200-96[\s\S]*Qwen3-30B-A3B/);
    expect(JSON.parse((await otelaPlan('catalogue', '--json')).out).gpus.length).toBeGreaterThan(10);
  });

  it('simulates one model, the same twice', async () => {
    const argv = [
      'simulate',
      '--model',
      'Llama-2-13b-hf',
      '--gpu',
      'gh200',
      '--rate',
      '4',
      '--input',
      'normal:599,822',
      '--output',
      '100',
      '--duration',
      '60',
    ];
    const { code, out } = await otelaPlan(...argv);
    expect(code).toBe(0);
    expect(out).toMatch(/until the first token/);
    expect((await otelaPlan(...argv)).out).toBe(out);
  });

  it('replays a trace', async () => {
    const trace = file('arrival_s,input,output\n0,100,10\n2.5,200,20\n', 'trace.csv');
    const { out } = await otelaPlan('simulate', '--model', 'Qwen3-8B', '--gpu', 'L40S', '--trace', trace, '--json');
    expect(JSON.parse(out)).toMatchObject({ requests: 2, refused: 0 });
  });

  it.each(['0,3000000000,10', '0,10,1e12', '0,Infinity,5', 'Infinity,10,10', '1e300,10,10', '0,0,1', '0,10'])(
    'a trace with the row %s is refused',
    async (row) => {
      const trace = file(`0,1,1\n${row}\n`, 'bad-trace.csv');
      const { code, log } = await otelaPlan('simulate', '--model', 'Qwen3-8B', '--gpu', 'L40S', '--trace', trace);
      expect([code, log]).toEqual([2, expect.stringContaining(row)]);
    },
  );

  it('refuses weights that the silicon does not run', async () => {
    const on = (gpu: string) =>
      otelaPlan(
        'simulate',
        '--model',
        'Qwen3-8B',
        '--gpu',
        gpu,
        '--weights',
        'fp8',
        '--rate',
        '1',
        '--input',
        '100',
        '--output',
        '10',
      );
    expect(await on('V100-32-SXM')).toMatchObject({
      code: 3,
      log: expect.stringMatching(/V100-32-SXM \(volta\) does not support fp8 weights/),
    });
    expect((await on('A100-80-SXM')).code).toBe(0);
    const workload = file(
      JSON.stringify({ models: [{ model: 'Qwen3-8B', rate: 1, input: 100, output: 10, weights: 'fp8' }] }),
      'fp8.json',
    );
    const inventory = file(JSON.stringify({ pools: [{ gpu: 'V100-32-SXM', nodes: 4 }] }), 'v100.json');
    const planned = await otelaPlan('plan', '--inventory', inventory, '--workload', workload);
    expect([planned.code, planned.log + planned.out]).toEqual([
      3,
      expect.stringMatching(/V100-32-SXM \(volta\) does not support fp8 weights/),
    ]);
  });

  it('refuses prompts that the model has no context for, in a plan as in a simulation', async () => {
    const workload = file(
      JSON.stringify({ models: [{ model: 'Llama-2-7b-hf', rate: 1, input: 6000, output: 100 }] }),
      'long.json',
    );
    const inventory = file(JSON.stringify({ pools: [{ gpu: 'A100-80-SXM', nodes: 1 }] }), 'one.json');
    const message = /context of 4,096 tokens; prompts of 6,000/;
    const planned = await otelaPlan('plan', '--inventory', inventory, '--workload', workload);
    expect(planned).toMatchObject({ code: 2, log: expect.stringMatching(message) });
    const simulated = await otelaPlan(
      'simulate',
      '--model',
      'Llama-2-7b-hf',
      '--gpu',
      'A100-80-SXM',
      '--rate',
      '1',
      '--input',
      '6000',
      '--output',
      '100',
    );
    expect(simulated).toMatchObject({ code: 2, log: expect.stringMatching(message) });
  });

  it('compares plans and draws them', async () => {
    const svg = join(folder, 'compare.svg');
    const { code, out } = await otelaPlan(
      'compare',
      '--inventory',
      INVENTORY,
      '--workload',
      workload(model({ rate: 20 }), model({ model: 'Llama-2-13b-hf', rate: 2 })),
      '--duration',
      '20',
      '--svg',
      svg,
    );
    expect(code).toBe(0);
    expect(out).toMatch(/by size[\s\S]*equal parts/);
    expect(readFileSync(svg, 'utf8')).toMatch(/^<svg [\s\S]*P95 latency[\s\S]*<\/svg>\n$/);
  });

  it('stops at its time limit with the best plan so far and an exit code that says so', async () => {
    const many = workload(
      ...[
        'Llama-2-7b-hf',
        'Llama-2-13b-hf',
        'CodeLlama-34b-hf',
        'Qwen3-8B',
        'Qwen3-32B',
        'Mixtral-8x7B-Instruct-v0.1',
      ].map((name, i) => model({ model: name, rate: 2 + i })),
    );
    const pools = file({
      pools: ['A100-80-SXM', 'H100-SXM', 'L40S', 'GH200-96', 'A40'].map((gpu) => ({ gpu, nodes: 5, gpus_per_node: 4 })),
    });
    const { code, out } = await plan(pools, many, '--time-limit', '0.1', '--gap', '0', '--duration', '0');
    expect(code).toBe(4);
    expect(out).toMatch(/The time limit ended the search/);
    expect(out).toMatch(/proven/);
  });

  it('ends with 3 when no plan serves the demand, and says what would', async () => {
    const { code, out } = await plan(INVENTORY, workload(model({ rate: 5000 })));
    expect(code).toBe(3);
    expect(out).toMatch(/^REQUIREMENTS NOT MET: .*all GPUs of a are in use.*It would fit at/);
  });

  it.each<[string, string[] | (() => string[]), number, RegExp]>([
    ['an unknown command', ['plann'], 2, /did you mean plan/],
    ['an unknown flag', ['plan', '--inventroy', 'x'], 2, /did you mean --inventory/],
    ['a missing file', ['plan', '--inventory', '/nowhere.json', '--workload', '/nowhere.json'], 2, /cannot read/],
    ['a missing flag', ['plan'], 2, /--inventory is required/],
    [
      'an unknown GPU',
      () => [
        'plan',
        '--inventory',
        file({ pools: [{ gpu: 'A200-80-SXM', nodes: 1 }] }),
        '--workload',
        workload(model()),
      ],
      2,
      /nearest: .*A100-80-SXM/,
    ],
    [
      'an unknown model',
      () => ['plan', '--inventory', INVENTORY, '--workload', workload(model({ model: 'Llama-3.3-7B' }))],
      2,
      /nearest:/,
    ],
    [
      'a negative rate',
      () => ['plan', '--inventory', INVENTORY, '--workload', workload(model({ rate: -1 }))],
      2,
      /rate cannot be negative/,
    ],
    [
      'a rate that is no number',
      () => ['plan', '--inventory', INVENTORY, '--workload', workload(model({ rate: 'NaN' }))],
      2,
      /rate/,
    ],
    [
      'a misspelt key',
      () => ['plan', '--inventory', INVENTORY, '--workload', workload(model({ ratee: 3 }))],
      2,
      /ratee/,
    ],
    [
      'lengths of nothing',
      () => ['plan', '--inventory', INVENTORY, '--workload', workload(model({ input: 0 }))],
      2,
      /input/,
    ],
    [
      'a model larger than the cluster',
      () => [
        'plan',
        '--inventory',
        file({ pools: [{ gpu: 'T4', nodes: 2, gpus_per_node: 1 }] }),
        '--workload',
        workload(model({ model: 'Llama-3.3-70B-Instruct' })),
      ],
      3,
      /there is not enough GPU memory.*smallest relaxation/,
    ],
    [
      'a parallelism that does not divide the heads',
      () => ['plan', '--inventory', INVENTORY, '--workload', workload(model({ model: 'llama-30b', tp: [3] }))],
      3,
      /3 does not divide the 52/,
    ],
    [
      'two pools of one name',
      () => [
        'plan',
        '--inventory',
        file({
          pools: [
            { gpu: 'A40', nodes: 1 },
            { gpu: 'A40', nodes: 2 },
          ],
        }),
        '--workload',
        workload(model()),
      ],
      2,
      /two pools/,
    ],
    [
      'a simulation without load',
      ['simulate', '--model', 'Qwen3-8B', '--gpu', 'A40', '--input', '10', '--output', '10'],
      2,
      /give --rate/,
    ],
    [
      'a simulation of NaN',
      ['simulate', '--model', 'Qwen3-8B', '--gpu', 'A40', '--rate', 'NaN', '--input', '10', '--output', '10'],
      2,
      /--rate must be a number/,
    ],
    [
      'a simulation of a model that does not fit',
      [
        'simulate',
        '--model',
        'Llama-3.3-70B-Instruct',
        '--gpu',
        'A40',
        '--rate',
        '1',
        '--input',
        '10',
        '--output',
        '10',
      ],
      3,
      /does not fit/,
    ],
    [
      'a simulation without end',
      ['simulate', '--model', 'Qwen3-8B', '--gpu', 'A40', '--rate', '1e6', '--input', '10', '--output', '10'],
      2,
      /the maximum is/,
    ],
    [
      'an unknown policy',
      [
        'simulate',
        '--model',
        'Qwen3-8B',
        '--gpu',
        'A40',
        '--rate',
        '1',
        '--input',
        '10',
        '--output',
        '10',
        '--policy',
        'best',
      ],
      2,
      /there are weighted/,
    ],
    [
      'measured rows of another form',
      () => [
        'plan',
        '--inventory',
        INVENTORY,
        '--workload',
        workload(model()),
        '--measured',
        file('a,b\n1,2\n', 'm.csv'),
      ],
      2,
      /first line must be/,
    ],
  ])('%s is an error that helps', async (_, argv, code, message) => {
    const found = await otelaPlan(...(typeof argv === 'function' ? argv() : argv));
    expect(found.log).toMatch(message);
    expect(found.log).not.toMatch(/at .*\.ts:\d+/);
    expect(found.code).toBe(code);
  });
});

describe('the example files', () => {
  it('make a plan', async () => {
    const examples = join(ROOT, 'examples/plan');
    expect((await plan(join(examples, 'inventory.json'), join(examples, 'workload.json'))).code).toBe(0);
  });
});
