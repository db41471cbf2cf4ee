/**
 * Environments that are unpacked on this node's disk. `<key>/` has the files of an environment; the key is that of its
 * archive. `<key>.json` is written when all files are unpacked. `<key>.room` has the size of an environment that is
 * being unpacked.
 */
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { type LockOptions, takeLock } from '../lock-file.ts';
import { asWeightsError } from '../weights-error.ts';
import { activation, environmentPrefix, relocate } from './relocate-environment.ts';
import { packedFormat, unpackEnvironment } from './unpack-archive.ts';

type Env = Readonly<Record<string, string | undefined>>;

const readySchema = z.object({ bytes: z.number(), entries: z.number() });
const roomSchema = z.object({ bytes: z.number() });

export interface Environment {
  /** The directory that contains `bin`, or the file of an image. */
  path: string;
  /** Variables for the engine's environment. */
  variables: Record<string, string>;
  /** Bytes that this call unpacked; 0 if the environment was already unpacked. */
  unpackedBytes: number;
}

interface UnpackRequest {
  key: string;
  /** The packed file. */
  file: string;
  /**
   * Whether its `conda-unpack` may run. False for packages of functions: any package can have a program of this name,
   * and it would run outside of the sandbox.
   */
  isTrusted: boolean;
  env: Env;
  /**
   * Reserves disk quota for `bytes` in total, of which `noted` are reserved already, then calls `note`.
   * @throws WeightsError `full`
   */
  room(bytes: number, noted: number, note: () => Promise<void>): Promise<void>;
  signal: AbortSignal;
}

export class UnpackedEnvironments {
  readonly #directory: string;
  readonly #locking: LockOptions;

  constructor(directory: string, locking: LockOptions) {
    this.#directory = directory;
    this.#locking = locking;
  }

  /** @throws Error if the directory cannot be created */
  async open(): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
  }

  #path(name: string): string {
    return join(this.#directory, name);
  }

  /**
   * The environment of a packed file. Only one process of this machine unpacks it.
   * @throws WeightsError `wrong`, `full`, `stopped`
   */
  async ready(request: UnpackRequest): Promise<Environment> {
    const { key, file, env, signal } = request;
    const format = await packedFormat(file);
    if (format === 'image') return { path: file, variables: {}, unpackedBytes: 0 };
    const isReady = async () => (await this.#read(`${key}.json`, readySchema)) !== undefined;
    const free = await takeLock(this.#path(`${key}.lock`), isReady, signal, this.#locking);
    let unpackedBytes = 0;
    try {
      if (free !== undefined) unpackedBytes = await this.#unpack(request, format);
      const path = await environmentPrefix(this.#path(key));
      return { path, variables: await activation(path, env), unpackedBytes };
    } catch (error) {
      throw asWeightsError(error);
    } finally {
      await free?.();
    }
  }

  async #unpack(
    { key, file, isTrusted, env, room: quota, signal }: UnpackRequest,
    format: 'tar' | 'tar.gz' | 'tar.zst',
  ): Promise<number> {
    const directory = this.#path(key);
    // Remove what a killed process left.
    await rm(directory, { recursive: true, force: true });
    await mkdir(directory, { mode: 0o700 });
    let noted = (await this.#read(`${key}.room`, roomSchema))?.bytes ?? 0;
    try {
      const { bytes, entries } = await unpackEnvironment({
        path: file,
        format,
        directory,
        signal,
        room: (wanted) =>
          quota(wanted, noted, async () => {
            await this.#write(`${key}.room`, { bytes: wanted });
            noted = wanted;
          }),
      });
      await relocate(await environmentPrefix(directory), { isTrusted, env, signal });
      await this.#write(`${key}.json`, { bytes, entries });
      return bytes;
    } catch (error) {
      await rm(directory, { recursive: true, force: true });
      throw error;
    } finally {
      await rm(this.#path(`${key}.room`), { force: true });
    }
  }

  async #write(name: string, value: object): Promise<void> {
    const unfinished = this.#path(`${name}.${process.pid}`);
    await writeFile(unfinished, JSON.stringify(value), { mode: 0o600 });
    await rename(unfinished, this.#path(name));
  }

  async #read<T>(name: string, schema: z.ZodType<T>): Promise<T | undefined> {
    try {
      return schema.parse(JSON.parse(await readFile(this.#path(name), 'utf8')));
    } catch {
      return undefined;
    }
  }

  /** Bytes of one environment. While it is being unpacked: the reserved bytes. */
  async bytesOf(key: string): Promise<number> {
    return (
      (await this.#read(`${key}.json`, readySchema))?.bytes ?? (await this.#read(`${key}.room`, roomSchema))?.bytes ?? 0
    );
  }

  async keys(): Promise<string[]> {
    const names = await readdir(this.#directory).catch(() => []);
    return [...new Set(names.map((name) => name.split('.')[0] ?? name))];
  }

  /** Bytes of all environments. */
  async used(): Promise<number> {
    let bytes = 0;
    for (const key of await this.keys()) bytes += await this.bytesOf(key);
    return bytes;
  }

  async remove(key: string): Promise<void> {
    // First remove the file that marks the environment as complete.
    await rm(this.#path(`${key}.json`), { force: true });
    await rm(this.#path(key), { recursive: true, force: true });
    await rm(this.#path(`${key}.room`), { force: true });
  }
}
