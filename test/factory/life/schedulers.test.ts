import { expect, it } from 'vitest';
import type { Launcher } from '../../../factory/launchers/launcher.ts';
import type { RoundDependencies } from '../../../factory/life/run-round.ts';
import { hostileHours } from '../../support/factory/hostile-hours.ts';

/** Different hours each time. The name of a failed test contains the seed that repeats its hours. */
const FIRST = Number(process.env.OTELA_FACTORY_SEED ?? Math.floor(Math.random() * 1_000_000));
const SEEDS = Array.from({ length: Number(process.env.OTELA_FACTORY_SEEDS ?? 3) }, (_, n) => FIRST + n);

it.each(SEEDS)(
  'two schedulers lie, hide, hold and preempt: no job too many or orphaned (OTELA_FACTORY_SEED=%i)',
  async (seed) => {
    const { violations, submitted, preempted } = await hostileHours({ seed, hours: 8 });
    expect(violations).toEqual([]);
    // The hours were not empty.
    expect(submitted).toBeGreaterThan(20);
    expect(preempted).toBeGreaterThan(0);
  },
);

/** Autoscalers with one rule less. The assertions above must catch each of them. */
const MUTANTS: Record<string, (parts: RoundDependencies) => RoundDependencies> = {
  'submissions without an answer are forgotten': (parts) => {
    parts.memory.submissions = parts.memory.submissions.map((one) => ({ ...one, outcome: 'refused' }));
    return parts;
  },
  'idle GPUs are not looked at': (parts) => ({
    ...parts,
    launchers: new Map(
      [...parts.launchers].map(([id, launcher]): [string, Launcher] => [
        id,
        {
          kind: launcher.kind,
          jobId: launcher.jobId,
          seen: launcher.seen,
          submit: (submission) => launcher.submit(submission),
          list: (prefix) => launcher.list(prefix),
          capacity: () => Promise.resolve([{ pool: 'normal', idle: 0 }]),
          cancel: (ids) => launcher.cancel(ids),
          check: (submission) => launcher.check(submission),
        },
      ]),
    ),
  }),
};

it.each(Object.entries(MUTANTS))('is found out: %s', async (_, mutant) => {
  for (let seed = 1; seed <= 12; seed++) {
    const { violations } = await hostileHours({ seed, hours: 6, mutant });
    if (violations.length > 0) return;
  }
  expect.fail('no hours found it');
});
