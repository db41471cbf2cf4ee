import { expect, it } from 'vitest';
import type { Memory } from '../../../factory/decisions/persisted-state.ts';
import type { Launcher } from '../../../factory/launchers/launcher.ts';
import type { RoundDependencies } from '../../../factory/life/run-round.ts';
import { simulateDay } from '../../support/factory/simulated-day.ts';

/** The long form in test/soak has more. */
const SEEDS = Number(process.env.OTELA_FACTORY_SEEDS ?? 4);

it.each(Array.from({ length: SEEDS }, (_, n) => n + 1))(
  'a day of lies, stalls and lost jobs: never too many, never an orphan, never a storm (seed %i)',
  async (seed) => {
    const day = await simulateDay({ seed });
    expect(day.violations).toEqual([]);
    // The day was not empty.
    expect(day.jobs).toBeGreaterThan(20);
    expect(day.kills).toBeGreaterThan(0);
  },
);

it('a recipe that never starts costs a few jobs a day, and its last log is kept', async () => {
  const day = await simulateDay({ seed: 3, broken: true });
  expect(day.violations).toEqual([]);
  // Two models: three starts, then one more after each rest of 1, 2, 4 and 8 hours; plus the starts that the
  // scheduler's faults ended first.
  expect(day.submissions).toBeLessThan(60);
  const [backOff] = Object.values(day.factory.memory.back_offs);
  expect(backOff).toMatchObject({ resting: true, log_tail: 'CUDA out of memory' });
});

/** The launcher with some calls replaced. */
function launchersWith(
  parts: RoundDependencies,
  change: (launcher: Launcher) => Partial<Launcher>,
): RoundDependencies['launchers'] {
  return new Map(
    [...parts.launchers].map(([id, launcher]) => [
      id,
      {
        kind: launcher.kind,
        jobId: launcher.jobId,
        seen: launcher.seen,
        submit: (submission) => launcher.submit(submission),
        list: (prefix) => launcher.list(prefix),
        capacity: () => launcher.capacity(),
        cancel: (ids) => launcher.cancel(ids),
        check: (submission) => launcher.check(submission),
        ...change(launcher),
      },
    ]),
  );
}

function inMemory(parts: RoundDependencies, change: (memory: Memory) => void): RoundDependencies {
  change(parts.memory);
  return parts;
}

/**
 * Autoscalers with one rule less. The assertions above must catch each of them: otherwise they would hold for any
 * autoscaler.
 */
const MUTANTS: Record<string, (parts: RoundDependencies) => RoundDependencies> = {
  '"cannot ask" is taken for "gone"': (parts) => ({
    ...parts,
    launchers: launchersWith(parts, (launcher) => ({
      list: (prefix) => launcher.list(prefix).catch(() => []),
    })),
  }),
  'a job that is missing once is gone': (parts) =>
    inMemory(parts, ({ jobs }) => {
      for (const job of Object.values(jobs)) job.missing = { since: 0, lists: 100 };
    }),
  'submissions without word are forgotten': (parts) =>
    inMemory(parts, (memory) => {
      memory.submissions = memory.submissions.map((one) => ({ ...one, outcome: 'refused' }));
    }),
  'submissions are not counted by the minute': (parts) => ({
    ...parts,
    config: { ...parts.config, guest: { ...parts.config.guest, submissions_per_minute: 1_000 } },
  }),
  'jobs that wait have no cap': (parts) => ({
    ...parts,
    config: { ...parts.config, clusters: parts.config.clusters.map((one) => ({ ...one, max_pending: 100 })) },
    models: parts.models.map((one) => ({
      ...one,
      places: one.places.map((place) => ({ ...place, cluster: { ...place.cluster, max_pending: 100 } })),
    })),
  }),
  'the killed one finds only jobs that it remembers': (parts) => ({
    ...parts,
    launchers: launchersWith(parts, (launcher) => ({
      list: async (prefix) =>
        (await launcher.list(prefix)).filter(
          ({ id }) =>
            parts.memory.submissions.every(({ name, outcome }) => outcome !== 'sent' || name === '') ||
            `alps/${id}` in parts.memory.jobs,
        ),
    })),
  }),
  'nothing is written before a job is submitted': (parts) => {
    let [calls, before] = [0, ''];
    return {
      ...parts,
      remember: (memory) => {
        calls += 1;
        if (calls === 1) before = JSON.stringify(memory);
        // Only the end of a round is stored: after a kill in the middle the round starts over, and the job's name is
        // used twice.
        parts.remember(calls === 1 ? memory : JSON.parse(before));
      },
    };
  },
  'engines are cancelled, not drained': (parts) => ({
    ...inMemory(parts, ({ jobs }) => {
      for (const job of Object.values(jobs))
        if (job.asked?.what === 'drain') job.asked = { ...job.asked, what: 'cancel', at: 0 };
    }),
    // All of them look idle, so some jobs that end are not idle.
    heard: (now) => {
      const { demand, nodes } = parts.heard(now);
      return { demand, nodes: nodes?.map((node) => ({ ...node, idle_ms: 10_000_000 })) };
    },
  }),
};

it.each(Object.entries(MUTANTS))('is found out: %s', async (_, mutant) => {
  for (let seed = 1; seed <= 24; seed++) {
    const { violations } = await simulateDay({ seed, hours: 10, mutant });
    if (violations.length > 0) return;
  }
  expect.fail('no day found it');
});
