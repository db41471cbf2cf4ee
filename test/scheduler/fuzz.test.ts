import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, expect, it } from 'vitest';
import { EXIT_INFEASIBLE, EXIT_TIME_OUT } from '../../scheduler/cli/exit-codes.ts';
import { EXIT_DONE, EXIT_USAGE } from '../../shared/command-line/index.ts';
import { otelaPlan } from './support/small.ts';

const folder = mkdtempSync(join(tmpdir(), 'otela-plan-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const odd = fc.oneof(
  fc.constantFrom(null, -1, 0, 1e308, -0, 0.5, '', 'x', [], {}, true, 1e-300),
  fc.double(),
  fc.string({ maxLength: 8 }),
  fc.integer(),
);
const maybe = <T>(value: fc.Arbitrary<T>) => fc.oneof({ weight: 40, arbitrary: value }, { weight: 1, arbitrary: odd });
const tokens = fc.oneof(
  fc.integer({ min: 1, max: 3000 }),
  fc.record({ mean: fc.double({ min: 1, max: 2000, noNaN: true }), sd: fc.double({ min: 0, max: 2000, noNaN: true }) }),
);

const inventory = fc.record({
  pools: maybe(
    fc.uniqueArray(
      fc.record({
        gpu: maybe(fc.constantFrom('A100-80-SXM', 'GH200-96', 'T4', 'L40S')),
        nodes: maybe(fc.integer({ min: 1, max: 6 })),
        gpus_per_node: maybe(fc.integer({ min: 1, max: 9 })),
      }),
      { minLength: 1, maxLength: 3, selector: ({ gpu }) => gpu },
    ),
  ),
});
const workload = fc.record({
  models: maybe(
    fc.array(
      fc.record({
        model: maybe(fc.constantFrom('Qwen3-8B', 'Llama-2-13b-hf', 'Mixtral-8x7B-Instruct-v0.1', 'opt-66b')),
        rate: maybe(fc.double({ min: 0.01, max: 50, noNaN: true })),
        cv: maybe(fc.double({ min: 0, max: 5, noNaN: true })),
        input: maybe(tokens),
        output: maybe(tokens),
        weights: maybe(fc.constantFrom('bf16', 'fp8', 'int8', 'int4')),
      }),
      { minLength: 1, maxLength: 3 },
    ),
  ),
});

it('whatever the files hold, there is a plan or an error that a person can read', async () => {
  const write = (name: string, value: unknown) => {
    const path = join(folder, name);
    writeFileSync(path, JSON.stringify(value));
    return path;
  };
  const ends: number[] = [];
  await fc.assert(
    fc.asyncProperty(
      inventory,
      workload,
      fc.constantFrom('latency', 'throughput', 'cost'),
      async (pools, models, objective) => {
        const argv = [
          '--inventory',
          write('i.json', pools),
          '--workload',
          write('w.json', models),
          '--objective',
          objective,
        ];
        const { code, out, log } = await otelaPlan('plan', ...argv, '--duration', '0.2', '--time-limit', '1');
        ends.push(code);
        expect(log).not.toMatch(/\.ts:\d+/);
        if (code === EXIT_DONE || code === EXIT_TIME_OUT) expect(out).not.toMatch(/NaN|undefined|Infinity/);
        else
          expect([[EXIT_INFEASIBLE, EXIT_USAGE].includes(code), log]).toEqual([
            true,
            expect.stringMatching(/^otela-plan: .+/m),
          ]);
      },
    ),
    { numRuns: Number(process.env.FUZZ_RUNS ?? 60), seed: 5 },
  );
  // Otherwise all files are of one kind, and the test shows nothing about the other.
  for (const code of [EXIT_DONE, EXIT_USAGE]) expect(ends).toContain(code);
});
