/** Runs programs, such as those of batch systems, with limits on time and output. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { errorText } from '../shared/text/error-text.ts';
import { AdaptiveTimeout } from '../shared/timing/adaptive-timeout.ts';

/** Minimum time limit of a command. The limit grows if earlier commands were slow. */
const COMMAND_TIMEOUT_MS = 30_000;
const SLOWER = 4;
const ANSWER_MAX_BYTES = 8 * 1024 * 1024;

/**
 * Result of a command. `missing`: it was not started. `killed`: its effect is unknown, because it did not end in time,
 * printed more than ANSWER_MAX_BYTES, or was killed by a signal of another process.
 */
export type CommandResult =
  | { kind: 'done'; code: number; out: string; errors: string }
  | { kind: 'missing'; errors: string }
  | { kind: 'killed'; errors: string };

export type RunCommand = (file: string, args: readonly string[], input?: string) => Promise<CommandResult>;

/**
 * Returns a function that runs a program and never rejects. `more`: variables that are added to this process's
 * environment.
 */
export function commandRunner(
  more: Readonly<Record<string, string>> = {},
  patienceMs = COMMAND_TIMEOUT_MS,
): RunCommand {
  const answers = new AdaptiveTimeout({ leastMs: patienceMs, mostMs: SLOWER * patienceMs });
  return async (file, args, input = '') => {
    const env = { ...process.env, ...more, LC_ALL: 'C' };
    try {
      return await run(spawn(file, args, { stdio: ['pipe', 'pipe', 'pipe'], env }), answers, file, input);
    } catch (error) {
      // Node throws for some failures (ETXTBSY, E2BIG, ENOMEM) instead of reporting them by an event.
      return { kind: 'missing', errors: `${file}: ${errorText(error)}` };
    }
  };
}

function run(
  child: ChildProcessWithoutNullStreams,
  answers: AdaptiveTimeout,
  file: string,
  input: string,
): Promise<CommandResult> {
  return new Promise((resolve) => {
    let [out, errors, bytes] = ['', '', 0];
    const { ms } = answers;
    const from = performance.now();
    let ended = false;
    const end = (result: CommandResult) => {
      ended = true;
      clearTimeout(timer);
      resolve(result);
    };
    // Do not wait for `close`: a child process of the command may hold the pipes open forever.
    const kill = (why: string) => {
      // First, because a failure to kill (EPERM) is an event `error`, as is a failure to start.
      end({ kind: 'killed', errors: `${file} ${why}` });
      child.kill('SIGKILL');
    };
    const answered = () => answers.answered(performance.now() - from);
    const timer = setTimeout(() => {
      answers.expired();
      kill(`did not answer within ${Number((ms / 1000).toFixed(1))} s`);
    }, ms);
    const hear = (add: (text: string) => void) => (piece: string) => {
      if (ended) return;
      bytes += Buffer.byteLength(piece);
      if (bytes <= ANSWER_MAX_BYTES) return add(piece);
      answered();
      kill(`printed more than ${ANSWER_MAX_BYTES} bytes`);
    };
    child.stdout.setEncoding('utf8').on(
      'data',
      hear((text) => {
        out += text;
      }),
    );
    child.stderr.setEncoding('utf8').on(
      'data',
      hear((text) => {
        errors += text;
      }),
    );
    // Ignores errors of writing: the command may exit without reading its input.
    child.stdin.on('error', () => {});
    child.stdin.end(input);
    child.on('error', (error) => end({ kind: 'missing', errors: `${file}: ${error.message}` }));
    child.on('close', (code, signal) => {
      if (ended) return;
      answered();
      const last = errors.trim().slice(-600);
      if (code === null) end({ kind: 'killed', errors: `${file} was ended by ${signal}` });
      else
        end({ kind: 'done', code, out, errors: last === '' && code !== 0 ? `${file} exited with code ${code}` : last });
    });
  });
}
