import { spawn } from 'node:child_process';
import { AdaptiveTimeout } from '../../shared/timing/adaptive-timeout.ts';
import { SchedulerError } from '../errors.ts';

/** Timeout of a login node's Slurm; longer if it answered slowly before. */
const answers = new AdaptiveTimeout({ leastMs: 30_000, mostMs: 120_000 });
const ANSWER_MAX_BYTES = 4 * 1024 * 1024;

/**
 * Returns the output of a command.
 *
 * @throws SchedulerError with the end of its error output if it fails
 */
export function command(file: string, args: readonly string[], input = ''): Promise<string> {
  return answers.bound(
    () => performance.now(),
    (ms) => run(file, args, input, ms),
  );
}

function run(file: string, args: readonly string[], input: string, timeout: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, { stdio: ['pipe', 'pipe', 'pipe'], timeout });
    let [out, errors, bytes] = ['', '', 0];
    const read = (sink: 'out' | 'errors') => (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > ANSWER_MAX_BYTES) return void child.kill('SIGKILL');
      if (sink === 'out') out += chunk.toString();
      else errors += chunk.toString();
    };
    child.stdout.on('data', read('out'));
    child.stderr.on('data', read('errors'));
    // The command may end without reading the script.
    child.stdin.on('error', () => {});
    child.stdin.end(input);
    child.on('error', (cause) => reject(new SchedulerError('launcher', `${file}: ${cause.message}`, { cause })));
    child.on('close', (code, signal) => {
      if (code === 0 && bytes <= ANSWER_MAX_BYTES) resolve(out);
      else reject(new SchedulerError('launcher', `${file} failed (${code ?? signal}): ${errors.trim().slice(-400)}`));
    });
  });
}
