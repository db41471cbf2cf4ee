/** `otela down`: ends jobs and connections, and removes what `otela up` made. */

import { rmSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { type Command, EXIT_DONE, type Flags, parseLine } from '../../shared/command-line/index.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { LocalGateway } from '../gateway/local-gateway.ts';
import { connectHost } from '../host/connect-host.ts';
import type { Host } from '../host/host.ts';
import { KubernetesPod } from '../host/kubernetes/kubernetes-pod.ts';
import { cacheDirectory } from '../install/program-files.ts';
import { endJobs, listJobs } from '../job/end-jobs.ts';
import { endLockHolder, isLocked } from '../state/run-lock.ts';
import { type Run, Runs, runDirectory } from '../state/runs.ts';
import { stateDirectory } from '../state/state-directory.ts';
import { UpError } from '../up-error.ts';
import { selectRuns } from './select-runs.ts';
import { HOST_FLAG } from './up-flags.ts';

/** Slurm kills a job that does not end, after its KillWait of 30 s by default. */
const ENDS_MS = 90_000;
const ASK_MS = 1_000;

const FLAGS = {
  ...HOST_FLAG,
  purge: { help: 'also remove the agent on the host and, if no run is left, all data on this machine' },
} as const satisfies Flags;

export const DOWN_COMMAND: Command<Output> = {
  summary: 'end models of otela up: cancel their jobs and remove their files',
  examples: `[MODEL] [--host HOST] [--purge]

Without MODEL and --host, all models of this machine.
  otela down Qwen/Qwen3-8B
  otela down --purge`,
  flags: FLAGS,
  run: downCommand,
};

async function downCommand(args: readonly string[], out: Output): Promise<number> {
  const { values, words } = parseLine(args, FLAGS, { words: 1 });
  const state = stateDirectory();
  const [runs, gateway] = [new Runs(state), new LocalGateway(state)];
  const selected = selectRuns(runs, words[0], values.host);
  let failed: UpError | undefined;
  for (const run of selected)
    try {
      await endRun(run, runs, gateway, values.purge);
      out.print(
        `${run.model} on ${run.host} is down: job ${run.job ?? 'not submitted'}, its files in ~/${runDirectory(run)} are removed`,
      );
    } catch (error) {
      failed = error instanceof UpError ? error : new UpError(errorText(error), 'Run otela down again.');
      out.complain(`${run.model} on ${run.host}: ${failed.message}`);
    }
  if (failed !== undefined) throw new UpError('Not all models are down.', 'Their runs are kept: run otela down again.');
  const left = runs.list();
  const locked = await Promise.all(left.map((run) => isLocked(runs.socketOf(run))));
  if (!locked.includes(true)) await gateway.stop();
  if (values.purge && left.length === 0) {
    for (const directory of [state, cacheDirectory()]) rmSync(directory, { recursive: true, force: true });
    out.print(`removed ${state} and ${cacheDirectory()}`);
  } else if (selected.length === 0) out.print('No model is up.');
  return EXIT_DONE;
}

/**
 * Cancels the jobs of a run, ends the process that serves it, and removes its files. The run is forgotten last: if a step fails, the next `otela down` tries again. */
export async function endRun(run: Run, runs: Runs, gateway: LocalGateway, purge: boolean): Promise<void> {
  const host = await connectHost(run);
  if (host instanceof KubernetesPod) {
    // First, because the process would see the pod end, or may be about to create it.
    await endLockHolder(runs.socketOf(run));
    // The pod's grace period lets agent and engine end.
    await host.remove();
  } else await endOnHost(host, run, runs, purge);
  // Another run would log in again, perhaps with a second factor.
  if (!(await runs.sharesHost(run))) await host.close();
  if (run.token !== undefined && (await gateway.runningUrl()) !== undefined)
    await gateway.revokeJoinToken(run.token).catch(() => undefined);
  runs.remove(run);
}

export async function endOnHost(host: Host, run: Run, runs: Pick<Runs, 'socketOf'>, purge: boolean): Promise<void> {
  const cancelled = new Set<string>();
  const cancel = async () => {
    const alive = await aliveJobs(host, run);
    await endJobs(
      host,
      run,
      alive.filter((id) => !cancelled.has(id)),
    );
    for (const id of alive) cancelled.add(id);
    return alive;
  };
  await cancel();
  await endLockHolder(runs.socketOf(run));
  // With `--keep`, the process may have submitted another job before it ended.
  for (const until = performance.now() + ENDS_MS; ; await delay(ASK_MS)) {
    const left = await cancel();
    if (left.length === 0) break;
    if (performance.now() > until)
      throw new UpError(`The job ${left.join(' ')} does not end.`, 'Run otela down again.');
  }
  await host.output(removeScript(run, purge));
}

async function aliveJobs(host: Host, run: Run): Promise<string[]> {
  const jobs = await listJobs(host, run);
  return jobs.flatMap(({ id, state }) => (state === 'ended' ? [] : [id]));
}

/** The agent stays if another machine's run uses it. */
function removeScript(run: Run, purge: boolean): string {
  const removal = [`cd "$HOME"`, `rm -rf ${runDirectory(run)}`, `rmdir .otela/run 2>/dev/null`];
  return [...removal, ...(purge ? ['[ -e .otela/run ] || rm -rf .otela'] : []), 'true'].join('\n');
}
