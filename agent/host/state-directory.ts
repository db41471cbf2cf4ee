/**
 * The directory with an agent's files for other processes of the same user:
 * `${XDG_RUNTIME_DIR:-$TMPDIR}/otela-agent/<session>/`.
 */
import { randomBytes } from 'node:crypto';
import {
  accessSync,
  constants,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { connect } from 'node:net';
import { hostname } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import { SESSION_PATTERN } from '../../shared/lattice/node-record.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { withShortPath } from './short-socket-path.ts';

type Env = Readonly<Record<string, string | undefined>>;

export const CONTROL_SOCKET = 'control.sock';

const ownerSchema = z.object({ pid: z.number().int(), host: z.string() });

/** Younger directories never count as stale, because an agent creates its directory a moment before it listens. */
const STALE_AFTER_MS = 30_000;

/** Maximum number of session directories that are read. */
const SESSIONS_MAX = 1000;

/**
 * Maximum number of base directories with random names that are read per place. An agent reuses an existing one, so
 * normally there is only one.
 */
const RANDOM_BASES_MAX = 16;

/**
 * Places that may contain session directories, best first. Inside a job XDG_RUNTIME_DIR and TMPDIR are often the login
 * node's: they do not exist here, or this user may not write in them.
 */
function statePlaces(env: Env): string[] {
  const given = [env.XDG_RUNTIME_DIR, env.TMPDIR].filter(isDirectory);
  // /tmp is used only if TMPDIR is not writable: agents of another job, with another TMPDIR, must not be found from
  // here.
  return [...new Set([...given, ...(isWritable(env.TMPDIR) ? [] : ['/tmp'])])];
}

/**
 * Names of the base directory in one place, best first. In /tmp another user can create the first two names before us.
 * The last one ends in random characters, which that user cannot guess. A later agent finds it by its owner.
 */
function stateBases(place: string): string[] {
  return [join(place, 'otela-agent'), fixedName(place), ...randomBases(place)];
}

function fixedName(place: string): string {
  return join(place, `otela-agent-${process.getuid?.() ?? 0}`);
}

/** Directories of this user that `mkdtemp` made in `place` for an earlier agent. */
function randomBases(place: string): string[] {
  const prefix = `${basename(fixedName(place))}-`;
  try {
    const names = readdirSync(place).filter((name) => name.startsWith(prefix));
    const ours = names.map((name) => join(place, name)).filter((base) => notOurs(base) === undefined);
    return ours.sort().slice(0, RANDOM_BASES_MAX);
  } catch {
    return [];
  }
}

function isDirectory(path: string | undefined): path is string {
  if (path === undefined || path === '') return false;
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

function isWritable(path: string | undefined): boolean {
  if (!isDirectory(path)) return false;
  try {
    accessSync(path, constants.W_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * Creates the session's directory with mode 0700 in the first place that belongs to this user.
 * @throws Error that lists the places tried
 */
function makeStateDir(session: string, env: Env): string {
  const troubles: string[] = [];
  const attempt = (makeBase: () => string): string | undefined => {
    try {
      return makeSession(makeBase(), session);
    } catch (error) {
      troubles.push(errorText(error));
      return undefined;
    }
  };
  for (const place of statePlaces(env)) {
    for (const base of stateBases(place)) {
      const directory = attempt(() => ownBase(base));
      if (directory !== undefined) return directory;
    }
    const directory = attempt(() => mkdtempSync(`${fixedName(place)}-`));
    if (directory !== undefined) return directory;
  }
  throw new Error(`no directory is usable for the agent's state: ${troubles.join('; ')}`);
}

/** Creates `base` if it is missing. @throws Error if other users own it or may write to it */
function ownBase(base: string): string {
  try {
    mkdirSync(base, { mode: 0o700 });
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  }
  const trouble = notOurs(base);
  if (trouble !== undefined) throw new Error(trouble);
  return base;
}

function makeSession(base: string, session: string): string {
  const directory = join(base, session);
  try {
    mkdirSync(directory, { mode: 0o700 });
    const owner = JSON.stringify({ pid: process.pid, host: hostname() });
    writeFileSync(join(directory, 'owner.json'), owner, { mode: 0o600 });
    return directory;
  } catch (error) {
    // A full disk accepts the directory, but refuses the file in it.
    removeStateDir(directory);
    throw error;
  }
}

/** Why `base` is not safe. A user who owns a directory, or may write to it, can replace the sessions in it. */
function notOurs(base: string): string | undefined {
  // lstat does not follow links: in /tmp another user could link this name to one of our directories.
  const stat = lstatSync(base, { throwIfNoEntry: false });
  if (!stat?.isDirectory()) return `${base} is not a directory`;
  if (process.getuid && stat.uid !== process.getuid()) return `${base} belongs to another user`;
  return (stat.mode & 0o022) !== 0 ? `other users can write ${base}` : undefined;
}

/** The state directory of one agent. It is renamed to the session when there is one. */
export class StateDir {
  #path: string;

  /** @throws Error that lists the places tried */
  constructor(env: Env) {
    // A random name in the form of a session, so that the commands also find agents without a session.
    const name = [...randomBytes(26)].map((byte) => 'abcdefghijklmnopqrstuvwxyz234567'[byte & 31]).join('');
    this.#path = makeStateDir(name, env);
  }

  get path(): string {
    return this.#path;
  }

  get name(): string {
    return basename(this.#path);
  }

  /** Open files and sockets in the directory stay usable. @throws Error */
  rename(session: string): void {
    const renamed = join(dirname(this.#path), session);
    renameSync(this.#path, renamed);
    this.#path = renamed;
  }

  remove(): void {
    removeStateDir(this.#path);
  }
}

/** State directories of this user's agents, running or not. */
export function sessionDirs(env: Env): string[] {
  return statePlaces(env)
    .flatMap(stateBases)
    .flatMap((base) => {
      if (notOurs(base) !== undefined) return [];
      try {
        const names = readdirSync(base).filter((name) => SESSION_PATTERN.test(name));
        return names.slice(0, SESSIONS_MAX).map((name) => join(base, name));
      } catch {
        return [];
      }
    });
}

function removeStateDir(directory: string): void {
  rmSync(directory, { recursive: true, force: true });
}

/**
 * Removes the directories of agents that were killed on this host. Those of other hosts are kept, because the place may
 * be a shared file system.
 */
export async function removeStale(env: Env, now: number): Promise<void> {
  for (const directory of sessionDirs(env)) {
    const age = now - (statSync(directory, { throwIfNoEntry: false })?.mtimeMs ?? now);
    if (age < STALE_AFTER_MS || ownerHost(directory) !== hostname()) continue;
    if (!(await answers(directory))) removeStateDir(directory);
  }
}

function ownerHost(directory: string): string | undefined {
  try {
    const owner = ownerSchema.safeParse(JSON.parse(readFileSync(join(directory, 'owner.json'), 'utf8')));
    return owner.success ? owner.data.host : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Connects to the socket instead of checking the pid: a container that shares this place numbers its processes
 * differently.
 */
function answers(directory: string): Promise<boolean> {
  return withShortPath(join(directory, CONTROL_SOCKET), (path) => {
    return new Promise((resolve) => {
      const socket = connect(path);
      const done = (alive: boolean) => {
        socket.destroy();
        resolve(alive);
      };
      socket.once('connect', () => done(true));
      socket.once('error', (error) =>
        done(!('code' in error && (error.code === 'ECONNREFUSED' || error.code === 'ENOENT'))),
      );
    });
  });
}
