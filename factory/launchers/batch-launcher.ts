/** The launcher for batch systems that are controlled by command-line programs. */
import type { BatchSystem, JobCluster } from '../../node/batch-systems/batch-system.ts';
import type { CommandResult, RunCommand } from '../../node/command-runner.ts';
import { type CheckFinding, type Launcher, LauncherError } from './launcher.ts';

/** Maximum number of ids in one command, because a command line has a maximum length. */
const IDS_PER_CALL = 200;

export function batchLauncher(cluster: JobCluster, system: BatchSystem, run: RunCommand): Launcher {
  const ask = async (call: { file: string; args: readonly string[]; input?: string }, submits: boolean) =>
    outputOf(await run(call.file, call.args, call.input), system, submits);
  return {
    kind: system.kind,
    seen: system.seen,
    jobId: system.jobId,
    async submit(submission) {
      const { taskId } = system;
      const submitted: string[] = [];
      for (let n = 0; n < (taskId === undefined ? submission.count : 1); n++) {
        const call = system.submit(submission);
        const out = await ask(call, true).catch((error: unknown) => {
          // The scheduler accepted some of the jobs. The next list shows them by their name.
          if (submitted.length > 0 && error instanceof LauncherError)
            throw new LauncherError('unclear', error.message, { cause: error });
          throw error;
        });
        const id = system.idIn(out);
        if (id === undefined)
          throw new LauncherError('unclear', `${call.file} printed "${out.slice(0, 200)}", not a job id`);
        submitted.push(id);
      }
      const [id = ''] = submitted;
      if (taskId === undefined || submission.count === 1) return submitted;
      return Array.from({ length: submission.count }, (_, n) => taskId(id, n));
    },
    async list(prefix) {
      const out = await ask(system.list, false);
      try {
        return system.parse(out).filter(({ name }) => name.startsWith(prefix));
      } catch (cause) {
        throw new LauncherError('unreachable', `${system.list.file} printed unreadable output: ${out.slice(0, 120)}`, {
          cause,
        });
      }
    },
    async capacity() {
      const { capacity } = system;
      return capacity === undefined ? undefined : capacity.parse(await ask(capacity, false), cluster);
    },
    async cancel(ids) {
      const { file, args, gone } = system.cancel;
      for (let n = 0; n < ids.length; n += IDS_PER_CALL) {
        const result = await run(file, args(ids.slice(n, n + IDS_PER_CALL)));
        if (result.kind === 'done' && result.code !== 0 && gone?.test(`${result.errors} ${result.out}`)) continue;
        outputOf(result, system, false);
      }
    },
    async check(submission): Promise<CheckFinding> {
      const { file, args, input } = system.check(submission);
      const result = await run(file, args, input);
      if (result.kind === 'done' && !system.away.test(result.errors))
        return { ok: result.code === 0, text: oneLine(result.errors || result.out, system).slice(0, 300) };
      throw new LauncherError('unreachable', result.errors);
    },
  };
}

/** @throws LauncherError */
function outputOf(result: CommandResult, system: BatchSystem, submits: boolean): string {
  if (result.kind === 'missing')
    throw new LauncherError('unreachable', `${result.errors}; is this a login node of the cluster?`);
  if (result.kind === 'killed') throw new LauncherError(submits ? 'unclear' : 'unreachable', result.errors);
  if (result.code === 0) return result.out;
  const text = oneLine(result.errors, system);
  if (system.away.test(text)) throw new LauncherError(submits ? 'unclear' : 'unreachable', text);
  throw new LauncherError('refused', text);
}

function oneLine(errors: string, { prefix }: BatchSystem): string {
  return (prefix === undefined ? errors : errors.replaceAll(prefix, '')).replace(/\s+/g, ' ').trim();
}
