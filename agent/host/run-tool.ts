/** Runs a program of the host, such as nvidia-smi or squeue. The promise never rejects; its value reports a failure. */
import { type ExecFileException, execFile } from 'node:child_process';
import { errorText } from '../../shared/text/error-text.ts';
import { childEnvironment } from './child-environment.ts';

type ToolAnswer = { ok: true; stdout: string } | { ok: false; reason: string; absent: boolean };

/** Runs `file` with `args`. Injected, so that a test can simulate a host. */
export type RunTool = (
  file: string,
  args: readonly string[],
  env?: Readonly<Record<string, string>>,
) => Promise<ToolAnswer>;

/** nvidia-smi without its persistence daemon takes this long to wake 8 GPUs one after the other. */
const TOOL_TIMEOUT_MS = 30_000;

/** Maximum output: 64 GPUs with all MIG slices take 100 KiB. */
const TOOL_OUTPUT_MAX_BYTES = 1024 * 1024;

export function toolRunner(env: Readonly<Record<string, string | undefined>>): RunTool {
  return (file, args, more = {}) =>
    new Promise((resolve) => {
      const options = {
        timeout: TOOL_TIMEOUT_MS,
        killSignal: 'SIGKILL' as const,
        maxBuffer: TOOL_OUTPUT_MAX_BYTES,
        // Use the C locale, because the locales that some sites set, such as German or French, change numbers and
        // dates.
        env: { ...childEnvironment(env), LC_ALL: 'C', ...more },
      };
      const ended = (error: ExecFileException | null, stdout: string, stderr: string) => {
        if (!error) return resolve({ ok: true, stdout });
        const absent = error.code === 'ENOENT';
        const message = `${stderr} ${stdout}`.trim().split('\n')[0]?.slice(0, 200) ?? '';
        const reason = absent
          ? `${file} is not installed`
          : error.killed
            ? `${file} did not answer`
            : `${file}: ${message || error.message}`;
        resolve({ ok: false, reason, absent });
      };
      try {
        execFile(file, [...args], options, ended);
      } catch (error) {
        // Node throws for some failures (ETXTBSY, EIO, ESTALE, ENOMEM, E2BIG) instead of calling back.
        resolve({ ok: false, reason: `${file}: ${errorText(error)}`, absent: false });
      }
    });
}
