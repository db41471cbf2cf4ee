/** A mock of a batch system: the test sets the jobs, and each call is counted. */

import { type Launcher, LauncherError, type Submission } from '../../../factory/launchers/launcher.ts';
import type { Capacity, ListedJob } from '../../../node/batch-systems/batch-system.ts';

export class MockLauncher implements Launcher {
  readonly kind = 'slurm';
  readonly jobId = '$SLURM_JOB_ID';
  readonly seen = 'recorded';
  readonly jobs: ListedJob[] = [];
  readonly submissions: Submission[] = [];
  lists = 0;
  /** If set, the error with which each submission is refused. */
  refusal: string | undefined;
  /** Changes a new job, for example its state. */
  begin: (job: ListedJob, submission: Submission) => ListedJob = (job) => job;

  async submit(submission: Submission): Promise<string[]> {
    this.submissions.push(submission);
    if (this.refusal !== undefined) throw new LauncherError('refused', this.refusal);
    const ids = Array.from({ length: submission.count }, (_, n) => String(this.jobs.length + 1 + n));
    for (const id of ids) this.jobs.push(this.begin({ id, name: submission.name, state: 'pending' }, submission));
    return ids;
  }

  async list(prefix: string): Promise<ListedJob[]> {
    this.lists += 1;
    return this.jobs.filter(({ name }) => name.startsWith(prefix));
  }

  /** What `capacity` answers; undefined: unknown. */
  idle: Capacity[] | undefined;

  async capacity(): Promise<Capacity[] | undefined> {
    return this.idle;
  }

  async cancel(ids: readonly string[]): Promise<void> {
    for (const job of this.jobs) if (ids.includes(job.id)) Object.assign(job, { state: 'ended', ended: 'cancelled' });
  }

  async check(): Promise<{ ok: boolean; text: string }> {
    return { ok: true, text: '' };
  }
}
