/** Rounds on the test's clock, with a mock of the batch system. */
import { expect, it } from 'vitest';
import { parseConfig } from '../../../factory/config/read-config.ts';
import { type DecisionNote, placedModels } from '../../../factory/decisions/factory-world.ts';
import { emptyMemory, type Memory } from '../../../factory/decisions/persisted-state.ts';
import type { Submission } from '../../../factory/launchers/launcher.ts';
import { LauncherError } from '../../../factory/launchers/launcher.ts';
import { type RoundResult, runRound } from '../../../factory/life/run-round.ts';
import { CONFIG } from '../../support/factory/config-text.ts';
import { MockLauncher } from '../../support/factory/mock-launcher.ts';

const LLAMA = 'meta-llama/Llama-3.1-8B-Instruct';
const ROUND_MS = 15_000;
const HOUR_MS = 3_600_000;

class Rounds {
  readonly launcher = new MockLauncher();
  readonly notes: DecisionNote[] = [];
  readonly memory: Memory = emptyMemory(0);
  readonly #config;
  now = 0;
  /** The jobs' output. */
  tail: string | undefined = 'CUDA out of memory';

  constructor(text: string) {
    const read = parseConfig(text);
    if ('faults' in read) throw new Error(JSON.stringify(read.faults));
    this.#config = read.config;
  }

  async until(end: number): Promise<RoundResult | undefined> {
    let result: RoundResult | undefined;
    for (; this.now < end; this.now += ROUND_MS)
      result = await runRound({
        config: this.#config,
        models: placedModels(this.#config),
        launchers: new Map([['alps', this.launcher]]),
        memory: this.memory,
        heard: () => ({ demand: new Map(), nodes: [] }),
        now: () => this.now,
        remember: () => {},
        logTail: async () => this.tail,
        logPath: (cluster) => `/logs/${cluster}-%j.log`,
        note: (note) => void this.notes.push(note),
      });
    return result;
  }
}

const pools = (submissions: readonly Submission[]) => submissions.map(({ pool }) => pool.name);
const KEPT = CONFIG.replace('max = 4', 'max = 4\nmin = 1');

it('an engine that fails is tried three times on each kind of GPU, then it rests: one kind does not make the other one forget', async () => {
  const rounds = new Rounds(KEPT);
  rounds.launcher.begin = (job) => ({ ...job, state: 'ended', ended: 'failed', reason: 'FAILED' });
  const result = await rounds.until(HOUR_MS / 2);
  expect(pools(rounds.launcher.submissions).sort()).toEqual(['normal', 'normal', 'normal', 'old', 'old', 'old']);
  expect(result?.held.get(LLAMA)).toMatch(/pauses for .*failed \(FAILED\)/);
  expect(rounds.memory.failed).toHaveLength(6);
  // After its rest only one job tries it.
  await rounds.until(HOUR_MS * 1.5);
  expect(rounds.launcher.submissions).toHaveLength(8);
});

it.each([
  ['before any list came', 0],
  ['after they were listed as waiting', 1],
])(
  'a scheduler that names no job that is over: jobs that end %s and left a log have failed, and the recipe rests',
  async (_, lists) => {
    const rounds = new Rounds(KEPT);
    const { launcher } = rounds;
    const shown = new Map<string, number>();
    launcher.list = async () =>
      launcher.jobs.filter(({ id }) => {
        shown.set(id, (shown.get(id) ?? 0) + 1);
        return (shown.get(id) ?? 0) <= lists;
      });
    const result = await rounds.until(HOUR_MS);
    expect(pools(launcher.submissions).sort()).toEqual(['normal', 'normal', 'normal', 'old', 'old', 'old']);
    expect(result?.held.get(LLAMA)).toContain('pauses for');
    expect(rounds.memory.failed.map(({ log_tail }) => log_tail)).toEqual(Array(6).fill('CUDA out of memory'));
  },
);

it('jobs that are taken and come to nothing are submitted ever more rarely, and are no failed starts', async () => {
  const rounds = new Rounds(KEPT);
  rounds.tail = undefined;
  rounds.launcher.list = async () => [];
  await rounds.until(2 * HOUR_MS);
  expect(rounds.launcher.submissions.length).toBeLessThan(30);
  expect(rounds.memory.failed).toEqual([]);
  expect(Object.values(rounds.memory.back_offs).every(({ resting }) => !resting)).toBe(true);
});

it('a pool that refuses is asked again ever more rarely, and another pool takes the job meanwhile', async () => {
  const rounds = new Rounds(KEPT);
  const { launcher } = rounds;
  const submit = launcher.submit.bind(launcher);
  launcher.submit = async (submission) => {
    if (submission.pool.name !== 'normal') return submit(submission);
    launcher.submissions.push(submission);
    throw new LauncherError('refused', 'Invalid account or account/partition combination specified');
  };
  await rounds.until(60_000);
  expect(pools(launcher.submissions)).toEqual(['normal', 'old']);
  expect(rounds.notes.map(({ text }) => text).join('\n')).toContain(
    'refused, trying again in 30s: alps/normal: Invalid account',
  );
});

it('all pools refuse: an hour is a few submissions, and the reason is told', async () => {
  const rounds = new Rounds(KEPT);
  rounds.launcher.refusal = 'QOSMaxSubmitJobPerUserLimit';
  const result = await rounds.until(HOUR_MS);
  expect(rounds.launcher.submissions.length).toBeLessThan(20);
  expect(result?.held.get(LLAMA)).toContain('QOSMaxSubmitJobPerUserLimit');
});
