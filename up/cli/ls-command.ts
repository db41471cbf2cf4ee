/** `otela ls`: the runs of this machine and their jobs. */

import { type Command, EXIT_DONE, JSON_FLAG, parseLine } from '../../shared/command-line/index.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { LocalGateway } from '../gateway/local-gateway.ts';
import { connectHost } from '../host/connect-host.ts';
import { listJobs } from '../job/end-jobs.ts';
import { parseStatus, statusScript, statusText } from '../job/job-status.ts';
import { isLocked } from '../state/run-lock.ts';
import { type Run, Runs } from '../state/runs.ts';
import { stateDirectory } from '../state/state-directory.ts';

export const LS_COMMAND: Command<Output> = {
  summary: 'list the models that otela up serves, and their jobs',
  examples: `[--json]

Asks each host with ssh for the state of the job.
  otela ls`,
  flags: JSON_FLAG,
  run: lsCommand,
};

interface Row {
  model: string;
  host: string;
  url: string | undefined;
  connected: boolean;
  job: string;
}

async function lsCommand(args: readonly string[], out: Output): Promise<number> {
  const { values } = parseLine(args, JSON_FLAG);
  const state = stateDirectory();
  const runs = new Runs(state);
  const url = await new LocalGateway(state).runningUrl();
  const rows = await Promise.all(runs.list().map((run) => rowOf(run, runs, url)));
  if (values.json) out.print(JSON.stringify(rows));
  else if (rows.length === 0) out.print('No model is up. Start one: otela up MODEL --host me@login.example.org');
  else
    for (const { model, host, connected, job } of rows)
      out.print(`${model}  ${host}  ${connected ? `${url}/v1` : 'not connected: run otela up again'}  ${job}`);
  return EXIT_DONE;
}

async function rowOf(run: Run, runs: Runs, url: string | undefined): Promise<Row> {
  const connected = await isLocked(runs.socketOf(run));
  const { model, host } = run;
  return { model, host, url: connected ? url : undefined, connected, job: await jobText(run) };
}

async function jobText(run: Run): Promise<string> {
  const { job, partition = '' } = run;
  if (job === undefined) return 'no job';
  try {
    const host = await connectHost(run);
    if (run.batch === undefined)
      return statusText(job, parseStatus(job, await host.output(statusScript(job, partition))), new Date());
    const found = (await listJobs(host, run)).find(({ id }) => id === job);
    return found?.state === 'running'
      ? `process ${job} runs`
      : `process ${job} has ended (${found?.reason ?? 'ended'})`;
  } catch (error) {
    return `job ${job}: ${errorText(error).split('\n')[0]}`;
  }
}
