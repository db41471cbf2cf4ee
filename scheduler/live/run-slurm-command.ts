import { commandRunner } from '../../node/command-runner.ts';
import { SchedulerError } from '../errors.ts';

const run = commandRunner();

/** Returns the output of a command. @throws SchedulerError with the end of its error output if it fails */
export async function runSlurmCommand(file: string, args: readonly string[], input = ''): Promise<string> {
  const result = await run(file, args, input);
  if (result.kind !== 'done') throw new SchedulerError('launcher', result.errors);
  if (result.code === 0) return result.out;
  throw new SchedulerError('launcher', `${file} failed (${result.code}): ${result.errors.slice(-400)}`);
}
