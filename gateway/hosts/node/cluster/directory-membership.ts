/**
 * The processes of one host that share a data directory. The process with the number OWNER owns all objects as long as
 * it runs. Each process writes a file with its address, and reads those of the others.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { writePrivateFile } from '../../../../node/private-file.ts';
import { SLOTS } from './object-slots.ts';
import type { MembershipEvents, ProcessMembership } from './process-membership.ts';
import type { ProcessIdentity, ProcessRow } from './process-table.ts';

/** Number of the process with the accounts and the objects. */
export const OWNER = 0;
/** File with the key of the links, in the directory of the processes' files. */
export const LINK_KEY_FILE = 'link.key';
const POLL_MS = 250;
const FILE = /^\d{1,3}\.json$/;

const rowSchema = z.object({
  incarnation: z.string().max(100),
  process: z.number().int(),
  address: z.string().max(300),
  version: z.string().max(100),
});

interface DirectoryMembershipOptions {
  /** Directory of the processes' files. */
  directory: string;
  me: ProcessIdentity;
  events: Pick<MembershipEvents, 'onProcesses'>;
  /** Milliseconds of a monotonic clock. */
  now(): number;
}

export class DirectoryMembership implements ProcessMembership {
  readonly #options: DirectoryMembershipOptions;
  /** By name of the file; at most 1,000. */
  #rows: ReadonlyMap<string, ProcessRow> = new Map();
  #running: ProcessRow[] = [];
  /** Incarnations that have ended, although their files are there; at most one for each file. */
  #ended: ReadonlySet<string> = new Set();
  #ownerSeenAt: number;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: DirectoryMembershipOptions) {
    this.#options = options;
    this.#ownerSeenAt = options.now();
  }

  get #file(): string {
    return join(this.#options.directory, `${this.#options.me.process}.json`);
  }

  async join(): Promise<void> {
    const { directory, me } = this.#options;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    writePrivateFile(this.#file, JSON.stringify(me));
    this.#read();
    this.#timer = setInterval(() => this.#read(), POLL_MS);
    this.#timer.unref();
  }

  #read(): void {
    const { me, events, now } = this.#options;
    this.#rows = this.#readRows();
    const rows = [...this.#rows.values()];
    this.#ended = new Set(rows.map(({ incarnation }) => incarnation).filter((one) => this.#ended.has(one)));
    this.#running = rows.filter(({ incarnation }) => !this.#ended.has(incarnation));
    if (this.#owner !== undefined) this.#ownerSeenAt = now();
    events.onProcesses(this.#running.filter(({ incarnation }) => incarnation !== me.incarnation));
  }

  /** A file that cannot be read, for example because too many files are open, does not prove that its process has ended. */
  #readRows(): ReadonlyMap<string, ProcessRow> {
    const { directory } = this.#options;
    const rows = new Map<string, ProcessRow>();
    try {
      for (const name of readdirSync(directory)) {
        if (!FILE.test(name)) continue;
        const row = readRow(join(directory, name), this.#rows.get(name));
        if (row !== undefined) rows.set(name, row);
      }
      return rows;
    } catch {
      return this.#rows;
    }
  }

  get #owner(): string | undefined {
    return this.#running.find(({ process }) => process === OWNER)?.incarnation;
  }

  owns(): boolean {
    return this.#options.me.process === OWNER;
  }

  ownerOf(): string | undefined {
    return this.#owner;
  }

  current(): undefined {
    return undefined;
  }

  async now(): Promise<void> {
    this.#read();
  }

  get silentMs(): number {
    return this.owns() || this.#owner !== undefined ? 0 : this.#options.now() - this.#ownerSeenAt;
  }

  get running(): readonly ProcessRow[] {
    return this.#running;
  }

  get size(): number {
    return Math.max(1, this.#running.length);
  }

  get owned(): number {
    return this.owns() ? SLOTS : 0;
  }

  async prove(incarnation: string): Promise<void> {
    this.#ended = new Set([...this.#ended, incarnation]);
    this.#read();
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    rmSync(this.#file, { force: true });
  }
}

/** The row of one file: `known` if the file cannot be read, none if the file has gone or is not complete. */
function readRow(path: string, known: ProcessRow | undefined): ProcessRow | undefined {
  try {
    const { success, data } = rowSchema.safeParse(JSON.parse(readFileSync(path, 'utf8')));
    return success ? { ...data, url: undefined, beat: 0, stores: true } : undefined;
  } catch (error) {
    return error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === 'ENOENT' ? undefined : known;
  }
}
