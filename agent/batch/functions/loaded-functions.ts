/**
 * The functions of a node. Decides which functions are loaded, on which GPUs, and which one is unloaded for another.
 * Remembers which functions failed.
 */

import type { NodeContexts } from '../../../shared/batch/function-context.ts';
import { inBackground } from '../../../shared/timing/in-background.ts';
import { removeStaleDirectories } from './function-directory.ts';
import type { FunctionProcess } from './function-process.ts';
import { type FunctionCode, type FunctionStarter, LoadError, UnsuitableNodeError } from './function-starter.ts';

interface HostOptions {
  starter: Pick<FunctionStarter, 'start' | 'close'>;
  /** Maximum number of processes that are loaded concurrently. */
  loadedMax: number;
  /**
   * Names of this node's GPUs, as CUDA_VISIBLE_DEVICES takes them. Each process gets one of them, or as many as its
   * function declares. Empty: processes see what the agent sees.
   */
  gpus: readonly string[];
  /** Parent directory of the functions' temporary directories. */
  temporary: string;
  /** Time after which an unused function is unloaded. Default: ten minutes. */
  idleMs?: number;
  now(): number;
  log(line: string): void;
}

interface Loaded {
  context: string;
  /** Undefined while its packages are prepared. */
  process: FunctionProcess | undefined;
  state: 'loading' | 'ready';
  /** True while a call, or the loading, uses it. */
  inUse: boolean;
  gpus: readonly string[];
  /** Time without calls after which it is unloaded. */
  idleMs: number;
  /** Duration of load() until a call's results report it. */
  loadMs: number;
  usedMs: number;
}

/** A function that is unused for this long is unloaded, because it uses a GPU. */
const IDLE_MS = 600_000;
/**
 * A process that is unused for this long is unloaded for a second process of another function. With a shorter time, a
 * function would be unloaded between two of its leases.
 */
const SPARE_MS = 60_000;
const POLL_MS = 5_000;
/** Maximum number of stored code files; the oldest is dropped. */
const STORED_MAX = 32;
/** A function that failed is not tried on this node for this long. The time doubles with each failure. */
const BROKEN_MS = { first: 2_000, most: 600_000 };
const BROKEN_MAX = 64;

export class LoadedFunctions {
  readonly #options: HostOptions;
  /** At most `loadedMax`. A function may have several processes, each with its own GPUs. */
  readonly #loaded = new Set<Loaded>();
  /** Code files by context, the most recently used last. At most STORED_MAX, each at most half a MiB. */
  readonly #stored = new Map<string, FunctionCode>();
  /** Functions that failed, by context. At most BROKEN_MAX. */
  readonly #broken = new Map<string, { untilMs: number; waitMs: number }>();
  /** Callbacks of calls that wait for a loaded function: at most one per lease. */
  readonly #freed = new Set<() => void>();
  readonly #pollTimer: NodeJS.Timeout;
  #closed = false;

  constructor(options: HostOptions) {
    this.#options = options;
    removeStaleDirectories(options.temporary);
    this.#pollTimer = setInterval(() => this.#stopIdle(), POLL_MS);
  }

  get held(): NodeContexts {
    const now = this.#options.now();
    const inState = (state: Loaded['state']) => [
      ...new Set([...this.#loaded].filter((one) => one.state === state).map(({ context }) => context)),
    ];
    return {
      ready: inState('ready'),
      loading: inState('loading'),
      stored: [...this.#stored.keys()],
      broken: [...this.#broken].filter(([, { untilMs }]) => untilMs > now).map(([context]) => context),
    };
  }

  stored(context: string): FunctionCode | undefined {
    return this.#stored.get(context);
  }

  store(code: FunctionCode): void {
    this.#stored.delete(code.context);
    this.#stored.set(code.context, code);
    const [oldest] = this.#stored.keys();
    if (this.#stored.size > STORED_MAX && oldest !== undefined) this.#stored.delete(oldest);
  }

  /**
   * Returns a loaded process of the function for one call, because a process runs one call at a time. If all of them
   * are in use, loads another one on free GPUs, or waits. The caller must give the process back with `release`.
   * @throws LoadError
   */
  async acquire(code: FunctionCode): Promise<FunctionProcess> {
    const wanted = this.#gpusOf(code);
    for (;;) {
      if (this.#closed) throw new LoadError('the agent is stopping');
      const own = [...this.#loaded].filter(({ context, inUse }) => context === code.context && !inUse);
      for (const one of own) {
        const { process } = one;
        if (process === undefined || process.broken !== undefined) continue;
        one.inUse = true;
        return process;
      }
      const [broken] = own;
      if (broken !== undefined) await this.#stop(broken);
      else if (this.#fits(wanted)) return this.#start(code, wanted);
      else await this.#makeRoom(code);
    }
  }

  /** True if a loaded process of the function waits for a call. */
  hasFree(context: string): boolean {
    return [...this.#loaded].some(
      (one) => one.context === context && one.state === 'ready' && !one.inUse && one.process?.broken === undefined,
    );
  }

  /** GPU time of a call that took `ms`, in milliseconds. The first call of a process includes the time of load(). */
  gpuMs(process: FunctionProcess, ms: number): number {
    const known = [...this.#loaded].find((one) => one.process === process);
    if (known === undefined) return 0;
    const { gpus, loadMs } = known;
    known.loadMs = 0;
    return gpus.length * (ms + loadMs);
  }

  release(process: FunctionProcess): void {
    const known = [...this.#loaded].find((one) => one.process === process);
    if (known === undefined) return;
    known.inUse = false;
    known.usedMs = this.#options.now();
    this.#reportFreed();
  }

  /**
   * The function failed here. Other nodes may succeed.
   * @param isUnsuitable true if it will fail again, because the node does not have what the function declares
   */
  setBroken(context: string, isUnsuitable = false): void {
    const before = this.#broken.get(context);
    const first = isUnsuitable ? BROKEN_MS.most : BROKEN_MS.first;
    const waitMs = before === undefined ? first : Math.min(BROKEN_MS.most, before.waitMs * 2);
    this.#broken.delete(context);
    this.#broken.set(context, { untilMs: this.#options.now() + waitMs, waitMs });
    const [oldest] = this.#broken.keys();
    if (this.#broken.size > BROKEN_MAX && oldest !== undefined) this.#broken.delete(oldest);
  }

  isBroken(context: string): boolean {
    return (this.#broken.get(context)?.untilMs ?? 0) > this.#options.now();
  }

  /** The function answered. */
  setWell(context: string): void {
    this.#broken.delete(context);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#pollTimer);
    this.#options.starter.close();
    this.#reportFreed();
    await Promise.all([...this.#loaded].map((one) => this.#stop(one)));
  }

  /** The number of GPUs of each process. @throws LoadError if this node has fewer */
  #gpusOf({ options }: FunctionCode): number {
    const { length } = this.#options.gpus;
    const declared = options instanceof Error ? undefined : options.gpus;
    const wanted = declared ?? Math.min(1, length);
    if (wanted <= length) return wanted;
    throw new UnsuitableNodeError(
      `the function declares ${wanted} GPUs for each process, and this node has ${length}: declare fewer, or require=… that names nodes with more`,
    );
  }

  get #freeGpus(): string[] {
    const used = new Set([...this.#loaded].flatMap(({ gpus }) => gpus));
    return this.#options.gpus.filter((name) => !used.has(name));
  }

  #fits(gpus: number): boolean {
    return this.#loaded.size < this.#options.loadedMax && this.#freeGpus.length >= gpus;
  }

  /** Unloads an unused process of another function, or waits until a process is given back. */
  async #makeRoom({ context }: FunctionCode): Promise<void> {
    const hasOwn = [...this.#loaded].some((one) => one.context === context);
    const unusedMs = hasOwn ? SPARE_MS : 0;
    const now = this.#options.now();
    const [leaving] = [...this.#loaded]
      .filter(({ inUse, usedMs }) => !inUse && now - usedMs >= unusedMs)
      .sort((a, b) => a.usedMs - b.usedMs);
    if (leaving !== undefined) await this.#stop(leaving);
    else await new Promise<void>((resolve) => this.#freed.add(resolve));
  }

  async #start(code: FunctionCode, gpus: number): Promise<FunctionProcess> {
    const { starter, log, now } = this.#options;
    const { context } = code;
    const own = this.#options.gpus.length === 0 ? [] : this.#freeGpus.slice(0, gpus);
    const loaded: Loaded = {
      context,
      process: undefined,
      state: 'loading',
      inUse: true,
      gpus: own,
      idleMs: idleMsOf(code) ?? this.#options.idleMs ?? IDLE_MS,
      loadMs: 0,
      usedMs: now(),
    };
    this.#loaded.add(loaded);
    const on = own.length === 0 ? '' : ` on ${own.join(', ')}`;
    log(`function ${context.slice(0, 12)}: loading${on}`);
    const began = now();
    try {
      const process = await starter.start(code, this.#options.gpus.length === 0 ? undefined : own);
      loaded.process = process;
      const why = this.#closed ? 'the agent is stopping' : await process.load();
      if (why !== undefined) throw new LoadError(why);
      loaded.state = 'ready';
      loaded.loadMs = now() - began;
      log(`function ${context.slice(0, 12)}: ready after ${((now() - began) / 1_000).toFixed(1)} s${on}`);
      this.#reportFreed();
      return process;
    } catch (error) {
      if (error instanceof LoadError) log(`function ${context.slice(0, 12)}: could not be loaded: ${error.message}`);
      await this.#stop(loaded);
      throw error;
    }
  }

  async #stop(loaded: Loaded): Promise<void> {
    await loaded.process?.stop();
    this.#loaded.delete(loaded);
    this.#reportFreed();
  }

  #reportFreed(): void {
    for (const listener of [...this.#freed]) listener();
    this.#freed.clear();
  }

  #stopIdle(): void {
    const { now, log } = this.#options;
    for (const one of this.#loaded)
      if (!one.inUse && (one.process?.broken !== undefined || now() - one.usedMs >= one.idleMs))
        inBackground('functions', this.#stop(one), log);
  }
}

/** The time that the function declares. A process of another function that needs the GPU ends it earlier. */
function idleMsOf({ options }: FunctionCode): number | undefined {
  if (options instanceof Error || options.keep_s === undefined) return undefined;
  return options.keep_s * 1_000;
}
