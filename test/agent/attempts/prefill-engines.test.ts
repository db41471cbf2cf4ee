import { expect, it } from 'vitest';
import type { EngineConnection } from '../../../agent/attempts/engine-call.ts';
import { BodyBudget, PairState, PrefillEngines } from '../../../agent/attempts/prefill-engines.ts';

function three() {
  const log: string[] = [];
  const clock = { now: 0 };
  const budget = new BodyBudget();
  const prefill = { close: async () => {} } as EngineConnection;
  const pairs = ['a', 'b', 'c'].map((host) => {
    const target = { origin: `http://${host}`, pathPrefix: '', bootstrapPort: 1 };
    return new PairState({ target, prefill, log: (line) => log.push(line), budget, now: () => clock.now });
  });
  const [a, b, c] = pairs;
  if (a === undefined || b === undefined || c === undefined) throw new Error('three pairs');
  const engines = new PrefillEngines(pairs);
  const choose = () => engines.choose()?.target.origin.slice(-1);
  return { a, b, c, log, clock, budget, choose };
}

it('a prompt goes to the prefill engine with the fewest prompts; equals take turns', () => {
  const { a, b, c, choose } = three();
  expect([choose(), choose(), choose(), choose()]).toEqual(['a', 'b', 'c', 'a']);
  const ends = [a.begin(), a.begin(), b.begin(), c.begin(), c.begin()];
  expect([choose(), choose()]).toEqual(['b', 'b']);
  for (const end of ends) end();
  ends[0]?.();
  expect([a.running, b.running, c.running]).toEqual([0, 0, 0]);
});

it('a prefill engine that failed is avoided for five seconds, unless all have failed', () => {
  const { a, b, c, clock, log, choose } = three();
  a.failed('refused');
  a.failed('refused');
  expect([choose(), choose(), choose()]).toEqual(['b', 'c', 'b']);
  clock.now = 4_999;
  b.failed('refused');
  c.failed('refused');
  expect(['a', 'b', 'c']).toContain(choose());
  clock.now = 5_000;
  expect([choose(), choose()]).toEqual(['a', 'a']);
  a.works();
  expect(log.map((line) => line.replace(/:.*/, ''))).toEqual([
    'prefill engine http',
    'prefill engine http',
    'prefill engine http',
    'prefill engine http',
  ]);
});

it('all pairs of a decode engine share the memory of bodies', () => {
  const { a, b } = three();
  expect([a.hold(200 * 2 ** 20), b.hold(100 * 2 ** 20)]).toEqual([true, false]);
  a.giveBack(200 * 2 ** 20);
  expect(b.hold(100 * 2 ** 20)).toBe(true);
});
