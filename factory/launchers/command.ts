/** Runs programs of batch systems with bounds. */
import { spawn } from 'node:child_process';
import { AdaptiveTimeout } from '../../shared/timing/adaptive-timeout.ts';

/** Timeout of a scheduler's command; longer if it answered slowly before. */
const PATIENCE_MS = 30_000;
const SLOWER = 4;
const ANSWER_MAX_BYTES = 8 * 1024 * 1024;

/**
 * `timeout`: its effect is unknown, because it was killed: it did not answer in time, printed more than
 * ANSWER_MAX_BYTES, or got a signal.
 */
export type CommandResult =
  | { kind: 'done'; code: number; out: string; errors: string }
  | { kind: 'missing'; errors: string }
  | { kind: 'timeout'; errors: string };

export type RunCommand = (file: string, args: readonly string[], input?: string) => Promise<CommandResult>;

/** Adds the environment `more` to that of this process. The returned function never rejects. */
export function commandRunner(more: Readonly<Record<string, string>> = {}, patienceMs = PATIENCE_MS): RunCommand {
  const answers = new AdaptiveTimeout({ leastMs: patienceMs, mostMs: SLOWER * patienceMs });
  return (file, args, input = '') =>
    new Promise((resolve) => {
      const child = spawn(file, args, {
        stdio: ['pipe', 'pipe', 'pipe'],
        env: { ...process.env, ...more, LC_ALL: 'C' },
      });
      let [out, errors, bytes] = ['', '', 0];
      let late = false;
      const { ms } = answers;
      const from = performance.now();
      const slow = {
        kind: 'timeout',
        errors: `${file} did not answer within ${Number((ms / 1000).toFixed(1))} s`,
      } as const;
      const timer = setTimeout(() => {
        late = true;
        answers.expired();
        child.kill('SIGKILL');
        // Does not wait for `close`, because a child process of the command may hold the pipes forever.
        resolve(slow);
      }, ms);
      const hear = (add: (text: string) => void) => (piece: Buffer) => {
        bytes += piece.length;
        if (bytes > ANSWER_MAX_BYTES) {
          late = true;
          child.kill('SIGKILL');
        } else add(piece.toString());
      };
      child.stdout.on(
        'data',
        hear((text) => {
          out += text;
        }),
      );
      child.stderr.on(
        'data',
        hear((text) => {
          errors += text;
        }),
      );
      // The command may end without reading its input.
      child.stdin.on('error', () => {});
      child.stdin.end(input);
      child.on('error', (error) => {
        clearTimeout(timer);
        resolve({ kind: 'missing', errors: `${file}: ${error.message}` });
      });
      child.on('close', (code) => {
        clearTimeout(timer);
        if (!late) answers.answered(performance.now() - from);
        const last = errors.trim().slice(-600);
        if (late || code === null) resolve(slow);
        else
          resolve({ kind: 'done', code, out, errors: last === '' && code !== 0 ? `${file} ended with ${code}` : last });
      });
    });
}
