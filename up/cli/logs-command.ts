/** `otela logs`: what the job of a run printed. */

import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import { connectHost } from '../host/connect-host.ts';
import { Runs, runDirectory } from '../state/runs.ts';
import { stateDirectory } from '../state/state-directory.ts';
import { UpError } from '../up-error.ts';
import { selectRuns } from './select-runs.ts';
import { HOST_FLAG } from './up-flags.ts';

const FLAGS = {
  ...HOST_FLAG,
  follow: { help: 'continue with new lines', short: 'f' },
  lines: { value: 'N', default: '100', help: 'number of last lines' },
} as const satisfies Flags;

export const LOGS_COMMAND: Command<Output> = {
  summary: "show the output of a model's job: the agent's and the engine's",
  examples: `[MODEL] [--host HOST] [--follow] [--lines N]

  otela logs Qwen/Qwen3-8B --follow`,
  flags: FLAGS,
  run: logsCommand,
};

async function logsCommand(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, FLAGS, { words: 1 });
  if (!/^\d{1,6}$/.test(values.lines)) throw new UsageError(`--lines: "${values.lines}" is not a number`);
  const [run, ...others] = selectRuns(new Runs(stateDirectory()), words[0], values.host);
  if (run === undefined) throw new UpError('No model is up.', 'Start one: otela up MODEL --host me@login.example.org');
  if (others.length > 0) throw new UsageError('there are several runs: name the model, and the host with --host');
  const host = await connectHost(run);
  if (run.job === undefined) throw new UpError('The run has no job yet.', 'Wait until otela up shows its number.');
  const file = `"$HOME"/${runDirectory(run)}/${run.job}.log`;
  const follow = values.follow ? ' -F' : '';
  await host.show(`exec tail -n ${values.lines}${follow} ${file}`);
  return EXIT_DONE;
}
