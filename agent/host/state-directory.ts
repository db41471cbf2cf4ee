/**
 * The directory of an agent's files for other processes of the same user:
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

/** An agent creates its directory a moment before it listens, so younger directories never count as stale. */
const STALE_AFTER_MS = 30_000;

/** Directories of sessions, one each; more than these are not from agents. */
const SESSIONS_MAX = 1000;

/**
 * Directories with random names that a user may have in one place. An agent reuses the first, so more than these are
 * due to a fault.
 */
const RANDOM_BASES_MAX = 16;

/**
 * Places that can hold sessions, best first. Inside a job XDG_RUNTIME_DIR and TMPDIR are often the login node's: they
 * do not exist here, or this user may not write in them.
 */
function statePlaces(env: Env): string[] {
  const given = [env.XDG_RUNTIME_DIR, env.TMPDIR].filter(isDirectory);
  // Not always: another job's agents, with another TMPDIR, must not be found from here.
  return [...new Set([...given, ...(isWritable(env.TMPDIR) ? [] : ['/tmp'])])];
}

/**
 * Directories of one place, best first. In /tmp another user can create the first two names before us. The last form
 * ends in random characters, which that user cannot guess; a later agent finds it by its owner.
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
 * Creates the session's directory, 0700, in the first place that belongs to this user. Throws Error with the places
 * tried.
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
  throw new Error(`no place for the agent's state: ${troubles.join('; ')}`);
}

/** Returns `base` after creating it if it is missing. Throws Error if other users own it or may write to it. */
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
    // A full disk accepts the directory and refuses the file in it.
    removeStateDir(directory);
    throw error;
  }
}

/** If another user owns a directory or may write to it, that user could replace its sessions. */
function notOurs(base: string): string | undefined {
  // lstat does not follow a link: in /tmp another user could link it to one of our directories.
  const stat = lstatSync(base, { throwIfNoEntry: false });
  if (!stat?.isDirectory()) return `${base} is not a directory`;
  if (process.getuid && stat.uid !== process.getuid()) return `${base} belongs to another user`;
  return (stat.mode & 0o022) !== 0 ? `${base} can be written by others` : undefined;
}

/** The directory of one agent, named after its session once it has one. */
export class StateDir {
  #path: string;

  /** Throws Error with the places tried. */
  constructor(env: Env) {
    // In the form of a session's name, so that the commands also find agents without a session.
    const name = [...randomBytes(26)].map((byte) => 'abcdefghijklmnopqrstuvwxyz234567'[byte & 31]).join('');
    this.#path = makeStateDir(name, env);
  }

  get path(): string {
    return this.#path;
  }

  get name(): string {
    return basename(this.#path);
  }

  /** Open files and sockets in it stay usable. Throws Error. */
  rename(session: string): void {
    const renamed = join(dirname(this.#path), session);
    renameSync(this.#path, renamed);
    this.#path = renamed;
  }

  remove(): void {
    removeStateDir(this.#path);
  }
}

/** Directories of this user's sessions, live or not. */
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
 * Removes the directories of agents that were killed on this host. Another host's are kept, because the place may be a
 * shared file system.
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

/** Asks the socket, not the pid, because a container that shares this place numbers its processes differently. */
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
