/** Stores the end of an ended session's log in the operator's directory. */
import { resolve } from 'node:path';
import { spawnSafely } from '../host/spawn-safely.ts';

/** Maximum number of files of ended sessions in the directory; the oldest are deleted first. */
const FILES_MAX = 100;
/** Maximum length of the shell's error text. */
const COMPLAINT_MAX_CHARS = 200;

/**
 * The file is readable only for its owner (0600). `$1` is the directory, `$2` the session. The text arrives on standard
 * input.
 */
const SCRIPT = `umask 077
mkdir -p -- "$1" && cd -- "$1" && cat > "otela-$2.log" || exit
ls -1t | grep -E '^otela-[a-z0-9]{1,64}[.]log$' | tail -n +${FILES_MAX + 1} | while read -r old; do rm -f -- "$old"; done`;

/**
 * Stores the text. Resolves with an error text, or with undefined on success. Never rejects. May never resolve: on a
 * shared file system that hangs, a file operation blocks its thread forever. A shell does the file operations, because
 * a blocked thread would keep this process from ending.
 */
export function archiveLogTail(directory: string, session: string, text: Uint8Array): Promise<string | undefined> {
  const { PATH } = process.env;
  const shell = spawnSafely('sh', ['-c', SCRIPT, 'sh', resolve(directory), session], {
    detached: true,
    stdio: ['pipe', 'ignore', 'pipe'],
    env: { PATH, LC_ALL: 'C' },
  });
  let complaint = '';
  shell.stderr?.setEncoding('utf8').on('data', (piece: string) => {
    complaint = `${complaint}${piece}`.slice(0, COMPLAINT_MAX_CHARS);
  });
  shell.stdin?.on('error', () => {});
  shell.stdin?.end(text);
  return new Promise((settle) => {
    shell.once('error', (error) => settle(error.message));
    shell.once('close', (code) =>
      settle(code === 0 ? undefined : complaint.trim() || `the shell exited with code ${code}`),
    );
  });
}
