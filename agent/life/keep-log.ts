/** The log's end of a session, in the operator's directory. */
import { resolve } from 'node:path';
import { spawnSafely } from '../host/spawn-safely.ts';

/** Files of ended sessions in the directory; the oldest are deleted first. */
const FILES_MAX = 100;
/** Longest error text of the shell. */
const COMPLAINT_MAX_CHARS = 200;

/** Readable only for its owner (0600). `$1` is the directory, `$2` the session; the text arrives on standard input. */
const SCRIPT = `umask 077
mkdir -p -- "$1" && cd -- "$1" && cat > "otela-$2.log" || exit
ls -1t | grep -E '^otela-[a-z0-9]{1,64}[.]log$' | tail -n +${FILES_MAX + 1} | while read -r old; do rm -f -- "$old"; done`;

/**
 * Resolves with the error, or with undefined. Never rejects, and may never resolve: on a shared file system that hangs,
 * each call blocks its thread forever, and a blocked thread of this process would keep it from ending. So a shell makes
 * the calls.
 */
export function keepLog(directory: string, session: string, text: Uint8Array): Promise<string | undefined> {
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
    shell.once('close', (code) => settle(code === 0 ? undefined : complaint.trim() || `the shell ended with ${code}`));
  });
}
