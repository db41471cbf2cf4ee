/**
 * The functions of a node. Decides which functions are loaded, unloads one to make room for another, and remembers
 * which functions failed.
 */

import type { NodeContexts } from '../../../shared/batch/function-context.ts';
import { inBackground } from '../../../shared/timing/in-background.ts';
import { removeStaleDirectories } from './function-directory.ts';
import type { FunctionOptions } from './function-options.ts';
import { type FunctionLimits, FunctionProcess } from './function-process.ts';

export interface FunctionCode {
  context: string;
  name?: string;
  code: string;
  /** Parsed from the code; or why it cannot be parsed. Absent: the defaults. */
  options?: FunctionOptions | Error;
}

interface HostOptions {
  limits: FunctionLimits;
  env: Readonly<Record<string, string | undefined>>;
  /** Maximum number of functions that are loaded concurrently. One GPU rarely holds two models. */
  loadedMax: number;
  /** Parent directory of the functions' temporary directories. */
  temporary: string;
  /** Time after which an unused function is unloaded. Default: ten minutes. */
  idleMs?: number;
  now(): number;
  log(line: string): void;
}

interface Loaded {
  process: FunctionProcess;
  state: 'loading' | 'ready';
  users: number;
  usedMs: number;
}

/** A function that is unused for this long is unloaded, because it uses a GPU. */
const IDLE_MS = 600_000;
const POLL_MS = 5_000;
/** Maximum number of stored code files; the oldest is dropped. */
const STORED_MAX = 32;
/** A function that failed is not tried on this node for this long. The time doubles with each failure. */
const BROKEN_MS = { first: 2_000, most: 600_000 };
const BROKEN_MAX = 64;

/** The function could not be loaded. */
export class LoadError extends Error {
  constructor(why: string) {
    super(why);
    this.name = 'LoadError';
  }
}

export class LoadedFunctions {
  readonly #options: HostOptions;
  readonly #loaded = new Map<string, Loaded>();
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
    const inState = (state: Loaded['state']) =>
      [...this.#loaded].filter(([, one]) => one.state === state).map(([context]) => context);
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
   * Returns the loaded function for one call. Waits while another call uses it. If too many functions are loaded, waits
   * until another one can be unloaded. The caller must give the function back with `release`.
   * @throws LoadError
   */
  async acquire(code: FunctionCode): Promise<FunctionProcess> {
    for (;;) {
      if (this.#closed) throw new LoadError('the agent is stopping');
      const known = this.#loaded.get(code.context);
      // A process runs one call at a time. A second concurrent call would get the answer to the first call.
      if (known?.state === 'ready' && known.users === 0 && known.process.broken === undefined) {
        known.users += 1;
        return known.process;
      }
      const full = this.#loaded.size >= this.#options.loadedMax;
      if (known === undefined && !full) return this.#start(code);
      // Unload the function itself if it is broken, otherwise the least recently used one.
      const leaving = known === undefined ? this.#leastUsed() : ([code.context, known] as const);
      if (leaving?.[1].users === 0) await this.#stop(...leaving);
      else await new Promise<void>((resolve) => this.#freed.add(resolve));
    }
  }

  release(context: string): void {
    const known = this.#loaded.get(context);
    if (known === undefined) return;
    known.users -= 1;
    known.usedMs = this.#options.now();
    this.#reportFreed();
  }

  /** The function failed here. Other nodes may succeed. */
  setBroken(context: string): void {
    const before = this.#broken.get(context);
    const waitMs = before === undefined ? BROKEN_MS.first : Math.min(BROKEN_MS.most, before.waitMs * 2);
    this.#broken.delete(context);
    this.#broken.set(context, { untilMs: this.#options.now() + waitMs, waitMs });
    const [oldest] = this.#broken.keys();
    if (this.#broken.size > BROKEN_MAX && oldest !== undefined) this.#broken.delete(oldest);
  }

  /** The function answered. */
  setWell(context: string): void {
    this.#broken.delete(context);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#pollTimer);
    this.#reportFreed();
    await Promise.all([...this.#loaded].map(([context, one]) => this.#stop(context, one)));
  }

  async #start(code: FunctionCode): Promise<FunctionProcess> {
    const { env, temporary, log, now } = this.#options;
    const { context, name } = code;
    const limits = this.#limitsOf(code);
    const process = new FunctionProcess({ limits, env, temporary, code: code.code, name, log });
    const loaded: Loaded = { process, state: 'loading', users: 1, usedMs: now() };
    this.#loaded.set(context, loaded);
    log(`function ${context.slice(0, 12)}: loading`);
    const began = now();
    const why = await process.load();
    if (why !== undefined) {
      log(`function ${context.slice(0, 12)}: could not be loaded: ${why}`);
      await this.#stop(context, loaded);
      throw new LoadError(why);
    }
    loaded.state = 'ready';
    log(`function ${context.slice(0, 12)}: ready after ${((now() - began) / 1_000).toFixed(1)} s`);
    this.#reportFreed();
    return process;
  }

  /** The function's limits, within those of the node. @throws LoadError */
  #limitsOf({ options }: FunctionCode): FunctionLimits {
    const { limits } = this.#options;
    if (options instanceof Error) throw new LoadError(options.message);
    const { memory_bytes: memoryBytes = limits.memoryBytes, timeout_s: seconds } = options ?? {};
    if (memoryBytes > limits.memoryBytes)
      throw new LoadError(
        `the function declares ${mib(memoryBytes)} MiB of memory, and this node allows ${mib(limits.memoryBytes)} MiB (--functions-memory)`,
      );
    const timeoutMs = seconds === undefined ? Number.POSITIVE_INFINITY : seconds * 1_000;
    return {
      python: limits.python,
      memoryBytes,
      loadMs: Math.min(limits.loadMs, timeoutMs),
      callMs: Math.min(limits.callMs, timeoutMs),
    };
  }

  #leastUsed(): readonly [string, Loaded] | undefined {
    return [...this.#loaded].filter(([, { users }]) => users === 0).sort(([, a], [, b]) => a.usedMs - b.usedMs)[0];
  }

  async #stop(context: string, loaded: Loaded): Promise<void> {
    await loaded.process.stop();
    if (this.#loaded.get(context) === loaded) this.#loaded.delete(context);
    this.#reportFreed();
  }

  #reportFreed(): void {
    for (const listener of [...this.#freed]) listener();
    this.#freed.clear();
  }

  #stopIdle(): void {
    const { idleMs = IDLE_MS, now, log } = this.#options;
    for (const [context, one] of this.#loaded)
      if (one.users === 0 && (one.process.broken !== undefined || now() - one.usedMs >= idleMs))
        inBackground('functions', this.#stop(context, one), log);
  }
}

function mib(bytes: number): number {
  return Math.floor(bytes / 2 ** 20);
}
