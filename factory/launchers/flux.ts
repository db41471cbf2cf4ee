/**
 * Flux 0.60 and later: flux-submit(1), flux-jobs(1), flux-cancel(1). Tested by hand with 0.88 without GPUs, which its
 * built-in scheduler does not assign.
 */
import type { ClusterConfig } from '../config/schema.ts';
import { type BatchSystem, minutesOf, withLogRedirect } from './batch-system.ts';
import type { ListedJob, Submission } from './launcher.ts';

/** The job's id in characters that are allowed in file names and labels. */
const JOB_ID = '$(flux job id --to=f58plain "$FLUX_JOB_ID")';

function flags({ name, pool, gpus }: Submission): string[] {
  return [
    `--job-name=${name}`,
    `--queue=${pool.name}`,
    '--nodes=1',
    '--ntasks=1',
    `--gpus-per-task=${gpus}`,
    ...(pool.cpus === undefined ? [] : [`--cores-per-task=${pool.cpus}`]),
    `--time-limit=${minutesOf(pool.time)}m`,
    ...(pool.account === undefined ? [] : [`--bank=${pool.account}`]),
    '--output=/dev/null',
    ...pool.options.map((one) => (one.startsWith('-') ? one : `--${one}`)),
  ];
}

export function flux(_cluster: ClusterConfig): BatchSystem {
  return {
    kind: 'flux',
    seen: 'recorded',
    jobId: JOB_ID,
    away: /unable to connect|no such file or directory.*socket|host is unreachable|broker.*(offline|lost)|connection refused/i,
    // The script is visible as an argument of the job. It names files of secrets but contains no secret.
    submit: (submission) => ({
      file: 'flux',
      args: ['submit', ...flags(submission), 'bash', '-c', withLogRedirect(submission, JOB_ID)],
      input: '',
    }),
    idIn: (out) => /^(?:ƒ|f)?([1-9A-HJ-NP-Za-km-z]+)$/m.exec(out.trim())?.[0].replace(/^ƒ/, 'f'),
    list: {
      file: 'flux',
      args: ['jobs', '-a', '--no-header', '--format={id.f58plain}|{name}|{state}|{result}|{exception.note}'],
    },
    parse: parseJobs,
    cancel: { file: 'flux', args: (ids) => ['cancel', ...ids], gone: /inactive|unknown job/i },
    check: (submission) => ({ file: 'flux', args: ['submit', '--dry-run', ...flags(submission), 'true'] }),
  };
}

function parseJobs(out: string): ListedJob[] {
  return out.split('\n').flatMap((line): ListedJob[] => {
    const [id = '', name = '', state = '', result = '', ...note] = line.trim().split('|');
    if (id === '' || name === '') return [];
    switch (state) {
      case 'RUN':
      case 'CLEANUP':
        return [{ id, name, state: 'running' }];
      case 'INACTIVE': {
        const ended = { COMPLETED: 'done', CANCELED: 'cancelled', TIMEOUT: 'time' }[result];
        return [
          {
            id,
            name,
            state: 'ended',
            reason: note.join('|') || result,
            ended: ended === 'done' || ended === 'cancelled' || ended === 'time' ? ended : 'failed',
          },
        ];
      }
      default:
        return [{ id, name, state: 'pending', reason: state }];
    }
  });
}
