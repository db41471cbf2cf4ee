/**
 * Reads files that a user names: of bounded size, with ~ as the home directory, and with a warning if other users may
 * read a secret.
 */
import { statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { readBoundedFile } from '../../node/bounded-file.ts';
import { canOthersRead } from '../../node/private-file.ts';
import { UsageError } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import type { Env, ParseContext } from './setting.ts';

/** Maximum size of a token or key file, which has one line. */
const SECRET_FILE_MAX_BYTES = 16 * 1024;

/** The secret in the file `path`, without the newline that editors append. */
export function readSecretFile(name: string, path: string, { env, warn }: Pick<ParseContext, 'env' | 'warn'>): string {
  const full = expandHome(path, env);
  const secret = readBounded(full, SECRET_FILE_MAX_BYTES).trim();
  if (secret === '') throw new UsageError(`${name}: ${full} is empty`);
  if (readableByOthers(full)) warn(`${full} can be read by other users: chmod 600 ${full}`);
  return secret;
}

export function expandHome(path: string, env: Env): string {
  if (!path.startsWith('~/')) return path;
  const home = homeOf(env);
  if (home === undefined)
    throw new UsageError(`${path}: this user has no home directory here: set HOME, or give the absolute path`);
  return join(home, path.slice(2));
}

export function readableByOthers(path: string): boolean {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat !== undefined && canOthersRead(stat);
}

/** @throws UsageError */
export function readBounded(path: string, maxBytes: number): string {
  try {
    return readBoundedFile(path, maxBytes);
  } catch (error) {
    throw new UsageError(`cannot read ${path}: ${errorText(error)}`);
  }
}

/**
 * Checks a text that is sent in a header. A line break would end the header, and characters outside ASCII would arrive
 * changed or not at all.
 * @throws UsageError
 */
export function requireHeaderWord(what: string, text: string): string {
  const word = text.trim();
  if (/^[\x21-\x7e]{1,4096}$/.test(word)) return word;
  throw new UsageError(`${what} is not one word of printable ASCII characters`);
}

/**
 * Undefined if there is no home directory: in a container whose user is missing from /etc/passwd and that has no HOME,
 * `homedir` throws.
 */
export function homeOf(env: Env): string | undefined {
  if (env.HOME) return env.HOME;
  try {
    return homedir();
  } catch {
    return undefined;
  }
}
