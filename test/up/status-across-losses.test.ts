/** `otela up` waits for a job while its host is out of reach. */
import { expect, it } from 'vitest';
import type { JobStatus } from '../../up/job/job-status.ts';
import { statusAcrossLosses } from '../../up/job/status-across-losses.ts';
import { HostGoneError, UpError } from '../../up/up-error.ts';

const RUNNING: JobStatus = { kind: 'running', node: 'n1' };
const away = new UpError('cluster does not answer', 'Check the network.');

/** @param failures of the next questions and tries to connect, in order */
function host(lost: UpError | undefined, ...failures: Error[]) {
  const [connection, asked, ends] = [{ lost }, [] as string[], new AbortController()];
  const step = (name: string) => {
    asked.push(name);
    const failure = failures.shift();
    if (failure !== undefined) throw failure;
  };
  const status = statusAcrossLosses({
    jobs: {
      status: async () => {
        step('status');
        return RUNNING;
      },
    },
    connection,
    connectAgain: async () => {
      step('connect');
      connection.lost = undefined;
    },
    signal: ends.signal,
  });
  return { status, asked, ends };
}

it('a host that does not answer is asked again, and the status is unknown meanwhile', async () => {
  const { status, asked } = host(undefined, away);
  expect(await status('7')).toEqual({ kind: 'unknown', reason: 'cluster does not answer' });
  expect(await status('7')).toEqual(RUNNING);
  expect(asked).toEqual(['status', 'status']);
});

it('a relay that is lost is opened again before the host is asked, until it opens', async () => {
  const { status, asked } = host(away, away);
  expect(await status('7')).toMatchObject({ kind: 'unknown' });
  expect(await status('7')).toEqual(RUNNING);
  expect(asked).toEqual(['connect', 'connect', 'status']);
});

it('a host that is gone ends the wait, and so does the signal in a pause', async () => {
  const gone = new HostGoneError('the pod is gone', 'Run otela up again.');
  await expect(host(away, gone).status('7')).rejects.toBe(gone);
  const { status, ends } = host(away, away);
  await status('7');
  const asked = status('7');
  ends.abort();
  await expect(asked).rejects.toThrow('aborted');
});
