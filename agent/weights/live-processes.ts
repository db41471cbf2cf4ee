/**
 * Decides which of the processes that share a directory are alive. The kernel knows the processes of this machine.
 * Processes elsewhere (on a shared file system, with a volume that moved to another host, in a container on this host)
 * each write a heartbeat file into the directory. Its age is read by the file system's clock, so that no two machines'
 * clocks are compared. Since the file system's clock may jump, a process with a heartbeat file counts as gone only if
 * this process also saw its file unchanged for a while. A process without a file counts as gone immediately.
 */
import { createHash, randomUUID } from 'node:crypto';
import { constants, readFileSync, readlinkSync } from 'node:fs';
import { mkdir, open, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { isAlive } from '../host/is-process-alive.ts';

const BEAT_MS = 15_000;
/**
 * A process elsewhere counts as gone after this time without a heartbeat: twelve intervals. NFS caches attributes for a
 * minute.
 */
const GONE_MS = 180_000;
/**
 * How long this process must also have seen the heartbeat file unchanged, by its own clock: five intervals, and longer
 * than NFS caches attributes.
 */
const UNCHANGED_MS = 75_000;
/** Maximum number of watched files of other processes. Above it the oldest is forgotten. */
const WATCHED_MAX = 1024;
/** Files of processes that ended unexpectedly are removed after this time. */
const SWEPT_MS = 86_400_000;

const UNKNOWN = '-';

/** Identifies where process ids have the same meaning: one boot of one kernel, and one process namespace in it. */
const MACHINE = orUnknown(() => {
  const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8');
  return createHash('sha256')
    .update(`${boot}${readlinkSync('/proc/self/ns/pid')}`)
    .digest('hex')
    .slice(0, 16);
});

/**
 * When a process started, in ticks since boot (proc_pid_stat(5), field 22). It distinguishes processes that had the
 * same id one after the other.
 */
function startOf(pid: number | 'self'): string {
  return orUnknown(() => {
    const line = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return line.slice(line.lastIndexOf(')') + 2).split(' ')[19] ?? UNKNOWN;
  });
}

function orUnknown(read: () => string): string {
  try {
    return read();
  } catch {
    return UNKNOWN;
  }
}

const START = startOf('self');

/** Names of the files that this process holds. */
const held = new Set<string>();

interface Holder {
  pid: number;
  host: string;
  name: string | undefined;
  /** Absent in a file that a version without heartbeats wrote. */
  elsewhere?: { machine: string; start: string; beats: string };
}

/** Undefined if a full disk truncated the text. */
export function parseHolder(text: string): Holder | undefined {
  const [, pid, host = '', name, machine, start, beats] =
    /^(\d+) (\S+)(?: (\S+)(?: ([\w-]+) ([\w-]+) ([\w-]{36}))?)?\n$/.exec(text) ?? [];
  if (pid === undefined) return undefined;
  const elsewhere = machine !== undefined && start !== undefined && beats !== undefined && { machine, start, beats };
  return { pid: Number(pid), host, name, ...(elsewhere && { elsewhere }) };
}

export class LiveProcesses {
  readonly #directory: string;
  readonly #own = randomUUID();
  /** Heartbeats of others: the last one seen, and when it was first seen. At most WATCHED_MAX. */
  readonly #watched = new Map<string, { beatAt: number; seenAt: number }>();
  #started: Promise<void> | undefined;
  /** The write of the current or last heartbeat. */
  #beating: Promise<void> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;

  /** @param directory directory of the heartbeat files */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /**
   * Returns the text for a file that this process holds until `release` or its end. Starts the heartbeat.
   * @throws Error if nothing can be written
   */
  async hold(): Promise<string> {
    this.#started ??= this.#begin();
    await this.#started.catch((error: unknown) => {
      this.#started = undefined;
      throw error;
    });
    const name = randomUUID();
    held.add(name);
    return `${process.pid} ${hostname()} ${name} ${MACHINE} ${START} ${this.#own}\n`;
  }

  release(text: string): void {
    held.delete(parseHolder(text)?.name ?? '');
  }

  /**
   * True if the holder of the file with this text is alive. Also true if that is not known, because a living process
   * must not count as gone.
   */
  async lives(text: string): Promise<boolean> {
    const holder = parseHolder(text);
    // A full disk truncated the text. The holder counts as gone: the text will never show whether it lives.
    if (holder === undefined) return false;
    const { pid, host, name = '', elsewhere } = holder;
    if (elsewhere === undefined) {
      if (host !== hostname()) return true;
      return name !== '' && pid === process.pid ? held.has(name) : isAlive(pid);
    }
    const { machine, start, beats } = elsewhere;
    // A system without /proc has no containers either. There an unused process id proves that the process is gone.
    if (machine === UNKNOWN && MACHINE === UNKNOWN && host === hostname() && !isAlive(pid)) return false;
    if (machine !== MACHINE || machine === UNKNOWN) return !(await this.#isGone(beats));
    if (pid === process.pid && start === START) return held.has(name);
    return startOf(pid) === start;
  }

  async close(): Promise<void> {
    await this.#started?.catch(() => {});
    this.#started = undefined;
    clearInterval(this.#timer);
    await this.#beating;
    await rm(this.#path(this.#own), { force: true }).catch(() => {});
  }

  #path(beats: string): string {
    return join(this.#directory, beats);
  }

  async #begin(): Promise<void> {
    await this.#beat();
    this.#timer = setInterval(() => {
      // An error is ignored: the disk may be temporarily unavailable, and the next heartbeat may succeed.
      this.#beating = this.#beat().catch(() => {});
    }, BEAT_MS).unref();
    this.#sweep().catch(() => {}); // The next process tries again.
  }

  /**
   * Writes a heartbeat. Opens the file by its name each time, because heartbeats to an open file would be lost if
   * another process removed or replaced the file. Needs no free block on the disk.
   */
  async #beat(): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const file = await open(this.#path(this.#own), constants.O_WRONLY | constants.O_CREAT, 0o600);
    try {
      await file.write('.', 0);
    } finally {
      await file.close();
    }
  }

  async #sweep(): Promise<void> {
    for (const name of await readdir(this.#directory))
      if ((await this.#age(name)).age > SWEPT_MS) await rm(this.#path(name), { force: true });
  }

  async #isGone(beats: string): Promise<boolean> {
    const { age, beatAt } = await this.#age(beats);
    if (age === Number.POSITIVE_INFINITY) return true;
    const now = performance.now();
    const watched = this.#watched.get(beats);
    if (watched?.beatAt === beatAt) return now - watched.seenAt > (age > GONE_MS ? UNCHANGED_MS : GONE_MS);
    this.#watched.set(beats, { beatAt, seenAt: now });
    const [first] = this.#watched.keys();
    if (this.#watched.size > WATCHED_MAX && first !== undefined) this.#watched.delete(first);
    return false;
  }

  /**
   * Returns when the process last wrote a heartbeat, and how many milliseconds ago. The age is Infinity if the file
   * does not exist, because the process ended properly or its file was removed.
   */
  async #age(beats: string): Promise<{ age: number; beatAt: number }> {
    const now = this.#path(`now.${randomUUID()}`);
    try {
      const beatAt = await stat(this.#path(beats)).then(
        ({ mtimeMs }) => mtimeMs,
        (error: NodeJS.ErrnoException) => (error.code === 'ENOENT' ? undefined : Promise.reject(error)),
      );
      if (beatAt === undefined) return { age: Number.POSITIVE_INFINITY, beatAt: 0 };
      await writeFile(now, '.', { mode: 0o600 });
      return { age: (await stat(now)).mtimeMs - beatAt, beatAt };
    } catch {
      return { age: 0, beatAt: Number.NaN }; // A full or unavailable disk proves nothing.
    } finally {
      await rm(now, { force: true }).catch(() => {});
    }
  }
}
