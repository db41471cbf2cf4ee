/** The watch of a run's jobs, with a Slurm and a gateway of lists. */
import { expect, it } from 'vitest';
import { type ColdDemand, decideCold } from '../../up/job/cold-model.ts';
import { JobWatch } from '../../up/job/job-watch.ts';
import type { RunJob } from '../../up/job/run-job-list.ts';
import type { RunJobs } from '../../up/job/run-jobs.ts';
import type { StoredRun } from '../../up/state/runs.ts';
import { HostGoneError, UpError } from '../../up/up-error.ts';

const HOUR = 3_600_000;

class Fake {
  nowMs = 0;
  jobs: RunJob[] = [];
  ready: string[] = [];
  refuses = false;
  /** The failure of lists, if they fail. */
  unlisted: Error | undefined;
  demand: ColdDemand = { isKnown: true, requests: undefined, idleMs: new Map() };
  readonly told: string[] = [];
  readonly done: string[] = [];
  readonly watch: JobWatch;

  constructor(how: 'once' | 'keep' | 'cold') {
    const jobs = {
      list: async () => {
        if (this.unlisted !== undefined) throw this.unlisted;
        return structuredClone(this.jobs);
      },
      submit: async () => {
        if (this.refuses) throw new UpError('Slurm refuses the job: limit.', 'Wait.');
        const id = String(this.jobs.length + 1);
        this.jobs.push({ id, state: 'pending', reason: 'Priority', startMs: undefined });
        this.done.push(`submit ${id}`);
        return id;
      },
      cancel: async ([id = '']: readonly string[]) => {
        this.done.push(`cancel ${id}`);
        this.become(id, 'ended', 'CANCELLED');
      },
      release: async (id: string) => void this.done.push(`release ${id}`),
      failure: async (id: string, state: string) => new UpError(`The job ${id} failed (${state}).`, ''),
    };
    const gateway = {
      nodes: async () =>
        this.ready.map((id) => ({
          session: `s${id}`,
          state: 'SERVING',
          models: [{ id: 'm', state: 'ready' }],
          labels: { 'factory-job': `up/${id}` },
        })),
      drainNode: async (session: string) => void this.done.push(`drain ${session}`),
    };
    const model = {
      demand: undefined as never,
      report: () => {},
    };
    Object.defineProperty(model, 'demand', { get: () => this.demand });
    this.watch = new JobWatch({
      run: { value: { id: 'abcd1234', job: '1' }, update: () => {} } as unknown as StoredRun,
      jobs: jobs as unknown as RunJobs,
      gateway,
      keep: how === 'keep' ? { untilMs: 72 * HOUR, timeMs: 4 * HOUR } : undefined,
      cold: how === 'cold' ? { model, idleMs: 60_000 } : undefined,
      tell: (line) => void this.told.push(line),
      now: () => this.nowMs,
    });
  }

  become(id: string, state: RunJob['state'], reason = ''): void {
    for (const job of this.jobs) if (job.id === id) Object.assign(job, { state, reason, startMs: this.nowMs });
  }

  async looks(times: number, everyMs = 2_000): Promise<void> {
    for (let n = 0; n < times; n++) {
      await this.watch.look();
      this.nowMs += everyMs;
    }
  }
}

it('without --keep the command ends with its job, and says how to have the next one', async () => {
  const fake = new Fake('once');
  fake.jobs.push({ id: '1', state: 'running', reason: '', startMs: 0 });
  fake.ready = ['1'];
  await fake.looks(3);
  fake.ready = [];
  fake.become('1', 'ended', 'TIMEOUT');
  await expect(fake.looks(5)).rejects.toThrow(/job 1 has ended \(TIMEOUT\)[\s\S]*--keep 3d/);
  expect(fake.done).toEqual([]);
});

it('a list that fails says nothing of the job, unless its host does not exist any more', async () => {
  const fake = new Fake('once');
  fake.unlisted = new UpError('The connection timed out.', 'Wait.');
  await fake.looks(10);
  fake.unlisted = new HostGoneError('The pod was deleted.', 'Start the next one.');
  await expect(fake.looks(5)).rejects.toThrow(/The pod was deleted/);
});

it('after three jobs that fail one after another, no further job is submitted', async () => {
  const fake = new Fake('keep');
  fake.jobs.push({ id: '1', state: 'running', reason: '', startMs: 0 });
  fake.ready = ['1'];
  await fake.looks(1);
  fake.ready = [];
  fake.become('1', 'ended', 'NODE_FAIL');
  const failing = (async () => {
    for (let n = 0; n < 100; n++) {
      await fake.looks(1, 60_000);
      for (const { id, state } of fake.jobs) if (state === 'pending') fake.become(id, 'ended', 'FAILED');
    }
  })();
  await expect(failing).rejects.toThrow(/has ended \(FAILED\)/);
  const failures = fake.told.filter((line) => line.includes('failed'));
  expect(failures.length).toBeGreaterThanOrEqual(3);
  expect(fake.done.length).toBeLessThan(12);
});

it('failures of earlier commands do not count', async () => {
  const fake = new Fake('keep');
  for (const id of ['1', '2', '3', '4']) fake.jobs.push({ id, state: 'ended', reason: 'FAILED', startMs: 0 });
  fake.jobs.push({ id: '5', state: 'running', reason: '', startMs: 0 });
  fake.ready = ['5'];
  await fake.looks(2);
  expect(fake.told).toEqual([]);
  expect(fake.done[0]).toBe('submit 6');
});

it('a refusal of Slurm is told, and tried again after a pause', async () => {
  const fake = new Fake('cold');
  fake.refuses = true;
  fake.demand = waiting(1);
  await fake.looks(10);
  expect(fake.told).toEqual([expect.stringContaining('was not submitted. Slurm refuses the job: limit.')]);
  fake.refuses = false;
  fake.nowMs = 61_000;
  await fake.looks(1);
  expect(fake.done).toEqual(['submit 1']);
});

it('a request starts the job of a cold model, and its end follows the idle time', async () => {
  const fake = new Fake('cold');
  await fake.looks(20);
  expect(fake.done).toEqual([]);
  fake.demand = waiting(1);
  await fake.looks(3);
  expect(fake.done).toEqual(['submit 1']);
  fake.become('1', 'running');
  fake.ready = ['1'];
  fake.demand = { isKnown: true, requests: undefined, idleMs: new Map([['s1', 59_000]]) };
  await fake.looks(3);
  fake.demand = { isKnown: true, requests: undefined, idleMs: new Map([['s1', 60_000]]) };
  await fake.looks(3);
  expect(fake.done).toEqual(['submit 1', 'drain s1']);
  fake.ready = [];
  fake.become('1', 'ended', 'COMPLETED');
  fake.demand = waiting(1);
  await fake.looks(5);
  expect(fake.done).toEqual(['submit 1', 'drain s1', 'submit 2']);
});

it('a job that waits is cancelled if its requests are gone, and kept if the demand is unknown', () => {
  const jobs: RunJob[] = [{ id: '1', state: 'pending', reason: '', startMs: undefined }];
  const demand = { isKnown: true, requests: undefined, idleMs: new Map<string, number>() };
  expect(decideCold({ jobs, nodes: [], demand, idleMs: 1 })).toEqual([{ kind: 'cancel', job: '1' }]);
  expect(decideCold({ jobs, nodes: [], demand: { ...demand, isKnown: false }, idleMs: 1 })).toEqual([]);
});

function waiting(count: number): ColdDemand {
  const none = { queued: 0, in_flight: 0, busy: 0, ready_replicas: 0 };
  return {
    isKnown: true,
    requests: { model: 'm', waiting: count, oldest_wait_ms: 10, ...none },
    idleMs: new Map(),
  };
}
