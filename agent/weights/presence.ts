/**
 * Which processes that share a directory live. Those of this machine the kernel knows. Of others (a shared file system, a volume that moved
 * to another host, a container beside this one) each beats: it writes into a file of its own there, and ages are read by the clock of the
 * file system, so no two machines' clocks are compared. As that clock may jump, a process is gone only when this one saw its file stand still.
 */
import { createHash, randomUUID } from 'node:crypto';
import { constants, readFileSync, readlinkSync } from 'node:fs';
import { mkdir, open, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { isAlive } from '../host/is-alive.ts';

const BEAT_MS = 15_000;
/** Without a beat for so long a process elsewhere is gone: twelve beats, and NFS keeps attributes for a minute. */
const GONE_MS = 180_000;
/** The file of a process that is gone stood still for so long by this process's own clock, too: five beats, and longer than NFS keeps attributes. */
const STILL_MS = 75_000;
/** Files of other processes that are watched. Beyond it the one that was seen first is seen anew. */
const WATCHED_MAX = 1024;
/** Files of processes that ended without a word are removed after so long. */
const SWEPT_MS = 86_400_000;

const UNKNOWN = '-';

/** Where numbers of processes mean the same: one boot of one kernel, and one namespace of processes in it. */
const MACHINE = orUnknown(() => {
  const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8');
  return createHash('sha256')
    .update(`${boot}${readlinkSync('/proc/self/ns/pid')}`)
    .digest('hex')
    .slice(0, 16);
});

/** When a process began, in ticks since boot: a number is given to another process later (proc_pid_stat(5), field 22). */
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

/** Names of what this process holds. */
const held = new Set<string>();

interface Holder {
  pid: number;
  host: string;
  name: string | undefined;
  /** Absent: written by a version that did not beat. */
  elsewhere?: { machine: string; start: string; beats: string };
}

/** Undefined where the text was cut off by a full disk. */
export function holderOf(text: string): Holder | undefined {
  const [, pid, host = '', name, machine, start, beats] =
    /^(\d+) (\S+)(?: (\S+)(?: ([\w-]+) ([\w-]+) ([\w-]{36}))?)?\n$/.exec(text) ?? [];
  if (pid === undefined) return undefined;
  const elsewhere = machine !== undefined && start !== undefined && beats !== undefined && { machine, start, beats };
  return { pid: Number(pid), host, name, ...(elsewhere && { elsewhere }) };
}

export class Presence {
  readonly #directory: string;
  readonly #own = randomUUID();
  /** Beats of others: which one was seen last, and when first. At most WATCHED_MAX. */
  readonly #watched = new Map<string, { beatAt: number; seenAt: number }>();
  #begun: Promise<void> | undefined;
  /** The beat that runs, or ran last. */
  #beating: Promise<void> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;

  /** @param directory of the files in which processes beat */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /**
   * What a file says that this process holds, until `release` or its end. It beats from now on.
   * @throws Error: nothing can be written
   */
  async hold(): Promise<string> {
    this.#begun ??= this.#begin();
    await this.#begun.catch((error: unknown) => {
      this.#begun = undefined;
      throw error;
    });
    const name = randomUUID();
    held.add(name);
    return `${process.pid} ${hostname()} ${name} ${MACHINE} ${START} ${this.#own}\n`;
  }

  release(text: string): void {
    held.delete(holderOf(text)?.name ?? '');
  }

  /** Also true where nothing can be known: one that lives must not be taken for gone. */
  async lives(text: string): Promise<boolean> {
    const holder = holderOf(text);
    // Cut off by a full disk: alive for a while would be for ever.
    if (holder === undefined) return false;
    const { pid, host, name = '', elsewhere } = holder;
    if (elsewhere === undefined) {
      if (host !== hostname()) return true;
      return name !== '' && pid === process.pid ? held.has(name) : isAlive(pid);
    }
    const { machine, start, beats } = elsewhere;
    // Without /proc there are no containers either, and a number that no process has says enough.
    if (machine === UNKNOWN && MACHINE === UNKNOWN && host === hostname() && !isAlive(pid)) return false;
    if (machine !== MACHINE || machine === UNKNOWN) return !(await this.#isGone(beats));
    if (pid === process.pid && start === START) return held.has(name);
    return startOf(pid) === start;
  }

  async close(): Promise<void> {
    await this.#begun?.catch(() => {});
    this.#begun = undefined;
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
      this.#beating = this.#beat().catch(() => {}); // a disk that is away for a while: the next one may reach it
    }, BEAT_MS).unref();
    void this.#sweep().catch(() => {}); // the next process tries again
  }

  /** By name: into a file kept open it would beat unseen where another process had removed or replaced that. Needs no block of a full disk. */
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
    if (watched?.beatAt === beatAt) return now - watched.seenAt > (age > GONE_MS ? STILL_MS : GONE_MS);
    this.#watched.set(beats, { beatAt, seenAt: now });
    const [first] = this.#watched.keys();
    if (this.#watched.size > WATCHED_MAX && first !== undefined) this.#watched.delete(first);
    return false;
  }

  /** When it beat last, and milliseconds since. Infinity: it has said that it ends, or was swept. */
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
      return { age: 0, beatAt: Number.NaN }; // a full or a lost disk says nothing
    } finally {
      await rm(now, { force: true }).catch(() => {});
    }
  }
}
