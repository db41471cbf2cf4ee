/**
 * Files of a factory in its state directory: mode 0600, written atomically, so that a factory that dies while writing
 * leaves the old file.
 */
import { chmodSync, mkdirSync, readdirSync, statSync, unlinkSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { readBoundedFile } from '../../node/bounded-file.ts';
import { writePrivateFile } from '../../node/private-file.ts';
import { LOG_TAIL_MAX } from '../../shared/factory/factory-exchange.ts';
import { emptyMemory, type Memory, memorySchema } from '../decisions/persisted-state.ts';
import { errorLine, FactoryError } from '../factory-error.ts';

const FILE_MAX_BYTES = 16 * 1024 * 1024;
const LOGS_MAX = 1_000;
const LOG_RETENTION_MS = 7 * 86_400_000;

/**
 * Matches color and cursor sequences of an engine's output. They are removed, because they would affect the terminal
 * that shows the log.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is removed
const TERMINAL = /\u001b\[[0-9;?]*[A-Za-z]|[\u0000-\u0008\u000b-\u001f\u007f]/g;

const ignoreMissing = (cause: unknown) => {
  if (!(cause instanceof Error && 'code' in cause && cause.code === 'ENOENT')) throw cause;
};

export class StateFiles {
  readonly directory: string;
  readonly logs: string;

  constructor(directory: string) {
    this.directory = directory;
    this.logs = join(directory, 'logs');
  }

  /** @throws FactoryError `config` if the directory cannot be created or written */
  open(): void {
    try {
      mkdirSync(this.logs, { recursive: true, mode: 0o700 });
      chmodSync(this.directory, 0o700);
    } catch (cause) {
      throw new FactoryError('config', `the state directory ${this.directory} cannot be used: ${errorLine(cause)}`, {
        cause,
      });
    }
  }

  /**
   * Reads the memory. A missing file is an empty memory.
   * @throws FactoryError `config` if the file is damaged: without the stored back-offs the factory could flood a
   * scheduler
   */
  readMemory(now: number): Memory {
    const value = this.read('memory.json');
    if (value === undefined) return emptyMemory(now);
    const read = memorySchema.safeParse(value);
    if (read.success) return read.data;
    throw new FactoryError(
      'config',
      `${join(this.directory, 'memory.json')} is damaged (${read.error.issues[0]?.message}); inspect and remove it`,
    );
  }

  /**
   * Returns the JSON of a file, or undefined if it is missing.
   *
   * @throws FactoryError `config`
   */
  read(name: string): unknown {
    const path = join(this.directory, name);
    try {
      return JSON.parse(readBoundedFile(path, FILE_MAX_BYTES));
    } catch (cause) {
      if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return undefined;
      throw new FactoryError('config', `cannot read ${path}: ${errorLine(cause)}`, { cause });
    }
  }

  /** @throws the error of the file system; a factory that cannot store its memory submits nothing */
  write(name: string, value: unknown): void {
    writePrivateFile(join(this.directory, name), `${JSON.stringify(value)}\n`);
  }

  /** Returns the end of a job's output; undefined if its file is missing. */
  async logTail(cluster: string, id: string): Promise<string | undefined> {
    try {
      const file = await open(join(this.logs, logName(cluster, id)), 'r');
      try {
        const { size } = await file.stat();
        const from = Math.max(0, size - 4 * LOG_TAIL_MAX);
        const { buffer, bytesRead } = await file.read(Buffer.alloc(4 * LOG_TAIL_MAX), 0, 4 * LOG_TAIL_MAX, from);
        const text = buffer.toString('utf8', 0, bytesRead).replace(TERMINAL, '');
        return text.trimEnd().slice(-LOG_TAIL_MAX) || undefined;
      } finally {
        await file.close();
      }
    } catch {
      return undefined;
    }
  }

  /** Deletes the oldest logs, so that the logs of a year do not fill the disk quota. */
  tidy(now: number): void {
    const files = readdirSync(this.logs).flatMap((name) => {
      const path = join(this.logs, name);
      try {
        return [{ path, at: statSync(path).mtimeMs }];
      } catch {
        return [];
      }
    });
    files.sort((a, b) => b.at - a.at);
    for (const [n, { path, at }] of files.entries())
      if (n >= LOGS_MAX || now - at > LOG_RETENTION_MS)
        try {
          unlinkSync(path);
        } catch (cause) {
          ignoreMissing(cause);
        }
  }
}

/** File name of a job's log. Batch systems write their own form of the job's id in place of `%j`. */
const logName = (cluster: string, id: string) => `${cluster}-${id.replace(/[^\w.-]/g, '_')}.log`;
