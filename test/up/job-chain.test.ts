/** Jobs that follow each other: by cases, and in a Slurm of virtual time. */
import { expect, it } from 'vitest';
import { type ChainNode, type ChainView, decideChain, successorMinutes } from '../../up/job/job-chain.ts';
import type { RunJob } from '../../up/job/run-job-list.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const job = (id: string, state: RunJob['state'], more: Partial<RunJob> = {}): RunJob => ({
  id,
  state,
  reason: '',
  startMs: undefined,
  ...more,
});
const node = (of: string, isReady = true): ChainNode => ({ session: `s${of}`, job: of, isReady });
const view = (more: Partial<ChainView>): ChainView => ({
  jobs: [],
  nodes: [],
  nowMs: 0,
  wish: { untilMs: 72 * HOUR, timeMs: 4 * HOUR },
  readyMs: undefined,
  ...more,
});

it('a successor starts 15 minutes before the end, and earlier if the model loads slowly', () => {
  expect(successorMinutes(4 * HOUR)).toBe(225);
  expect(successorMinutes(4 * HOUR, 30 * MINUTE)).toBe(177);
  expect(successorMinutes(4 * HOUR, 3 * HOUR)).toBe(120);
  expect(successorMinutes(4 * MINUTE)).toBe(2);
});

it('three successors wait at most, each for the one before it', () => {
  const jobs = [job('1', 'running', { startMs: 0 })];
  for (const after of ['1', '2', '3']) {
    expect(decideChain(view({ jobs, nodes: [node('1')] }))).toEqual([
      { kind: 'submit', after: { job: after, minutes: 225 } },
    ]);
    jobs.push(job(String(jobs.length + 1), 'pending', { reason: 'Dependency' }));
  }
  expect(decideChain(view({ jobs, nodes: [node('1')] }))).toEqual([]);
});

it('no job is submitted that would start after the end of --keep, and none without it', () => {
  const jobs = [job('1', 'running', { startMs: 0 })];
  expect(decideChain(view({ jobs, wish: { untilMs: 3 * HOUR, timeMs: 4 * HOUR } }))).toEqual([]);
  expect(decideChain(view({ jobs, wish: undefined }))).toEqual([]);
  expect(decideChain(view({ nowMs: 73 * HOUR }))).toEqual([]);
});

it('the earlier job drains only when the later one serves', () => {
  const jobs = [job('1', 'running', { startMs: 0 }), job('2', 'running', { startMs: 0 })];
  const wish = undefined;
  expect(decideChain(view({ jobs, wish, nodes: [node('1'), node('2', false)] }))).toEqual([]);
  expect(decideChain(view({ jobs, wish, nodes: [node('2'), node('1')] }))).toEqual([
    { kind: 'drain', job: '1', session: 's1' },
  ]);
  expect(decideChain(view({ jobs, wish, nodes: [node('1', false), node('2')] }))).toEqual([]);
});

it('if a job ends early, its successor starts immediately; if there is none, a job is submitted', () => {
  const waits = { reason: 'Dependency' };
  const jobs = [job('1', 'ended'), job('2', 'pending', waits), job('3', 'pending', waits)];
  expect(decideChain(view({ jobs, wish: undefined }))).toEqual([{ kind: 'release', job: '2' }]);
  const released = [job('1', 'ended'), job('2', 'pending', { reason: 'Resources' })];
  expect(decideChain(view({ jobs: released, wish: undefined }))).toEqual([]);
  expect(decideChain(view({ jobs: [job('1', 'ended')] }))).toEqual([{ kind: 'submit' }]);
});

/** A Slurm in which a job starts as soon as it may, and serves after its load time. */
class VirtualSlurm {
  nowMs = 0;
  readonly #jobs: { id: string; fromMs?: number; after?: { job: string; minutes: number }; endedMs?: number }[] = [];

  readonly timeMs: number;
  readonly loadMs: number;

  constructor(timeMs: number, loadMs: number) {
    this.timeMs = timeMs;
    this.loadMs = loadMs;
  }

  submit(after?: { job: string; minutes: number }): void {
    this.#jobs.push({ id: String(this.#jobs.length + 1), ...(after === undefined ? {} : { after }) });
    this.#start();
  }

  advance(ms: number): void {
    this.nowMs += ms;
    for (const one of this.#jobs)
      if (one.fromMs !== undefined && this.nowMs >= one.fromMs + this.timeMs) one.endedMs ??= this.nowMs;
    this.#start();
  }

  #start(): void {
    for (const one of this.#jobs) {
      const before = this.#jobs.find(({ id }) => id === one.after?.job);
      const mayStart = (before?.fromMs ?? 0) + (one.after?.minutes ?? 0) * MINUTE <= this.nowMs;
      if (one.fromMs === undefined && mayStart && (before === undefined || before.fromMs !== undefined))
        one.fromMs = this.nowMs;
    }
  }

  end(id: string): void {
    const found = this.#jobs.find((one) => one.id === id);
    if (found !== undefined) found.endedMs ??= this.nowMs;
  }

  get jobs(): RunJob[] {
    return this.#jobs.map(({ id, fromMs, endedMs }) => {
      const state = endedMs !== undefined ? 'ended' : fromMs === undefined ? 'pending' : 'running';
      return job(id, state, { startMs: fromMs, reason: state === 'pending' ? 'Dependency' : '' });
    });
  }

  /** Agents drain a minute before the end, and Slurm's signal may arrive three minutes before it. */
  get ready(): string[] {
    return this.#jobs.flatMap(({ id, fromMs, endedMs }) => {
      if (fromMs === undefined || endedMs !== undefined) return [];
      const ageMs = this.nowMs - fromMs;
      return ageMs >= this.loadMs && ageMs < this.timeMs - 3 * MINUTE ? [id] : [];
    });
  }
}

it.each([
  ['4 h jobs', 4 * HOUR, 5 * MINUTE],
  ['4 h jobs that load for 40 min', 4 * HOUR, 40 * MINUTE],
  ['1 h jobs', HOUR, 8 * MINUTE],
])('%s: a ready node at every minute of three days, also while this machine sleeps', (_, timeMs, loadMs) => {
  const slurm = new VirtualSlurm(timeMs, loadMs);
  slurm.submit();
  const wish = { untilMs: 72 * HOUR, timeMs };
  const gaps: number[] = [];
  let most = 0;
  for (; slurm.nowMs < wish.untilMs; slurm.advance(MINUTE)) {
    const { ready } = slurm;
    if (ready.length === 0 && slurm.nowMs >= loadMs) gaps.push(slurm.nowMs / MINUTE);
    most = Math.max(most, slurm.jobs.filter(({ state }) => state === 'running').length);
    // It sleeps for ten hours of each day, which is too long for jobs of an hour.
    if (slurm.nowMs % (24 * HOUR) >= 14 * HOUR && timeMs > HOUR) continue;
    const nodes = ready.map((id) => node(id));
    for (const action of decideChain({ jobs: slurm.jobs, nodes, nowMs: slurm.nowMs, wish, readyMs: loadMs }))
      if (action.kind === 'submit') slurm.submit(action.after);
      else if (action.kind === 'drain') slurm.end(action.job);
  }
  expect(gaps).toEqual([]);
  expect(most).toBeLessThanOrEqual(2);
});
