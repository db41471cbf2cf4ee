/**
 * Runs lines of batches with users' functions on this node. Leases are taken ahead, so that no process waits for a
 * gateway: one loop for each gateway takes them, and one for each process runs their lines.
 */

import { WHY_MAX } from '../../../shared/batch/function-context.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import { Backoff } from '../../../shared/timing/backoff.ts';
import { inBackground } from '../../../shared/timing/in-background.ts';
import { type BatchGatewayClient, isWorthALogLine } from '../batch-gateway-client.ts';
import { BatchGateways } from '../batch-gateways.ts';
import { LeaseRun, UNCOMMITTED_MAX_BYTES } from '../lease-run.ts';
import { RateLimitedLog } from '../rate-limited-log.ts';
import { CallSize } from './call-size.ts';
import { fetchFunction } from './fetch-function.ts';
import { runCall } from './function-call.ts';
import type { FunctionProcess } from './function-process.ts';
import { failedLine } from './function-results.ts';
import { type FunctionCode, LoadError, UnsuitableNodeError } from './function-starter.ts';
import { type FunctionLease, LeasedLines } from './leased-lines.ts';
import type { LoadedFunctions } from './loaded-functions.ts';

interface FunctionRunnerOptions {
  /** Gateways for which this agent currently works. */
  gateways(): readonly URL[];
  open(url: URL): BatchGatewayClient;
  host: LoadedFunctions;
  /** Owners whose functions may run here; undefined: all owners. */
  owners: readonly string[] | undefined;
  /** Maximum number of concurrent calls. */
  workers: number;
  /** True if this agent has a session. */
  admitted(): boolean;
  /** Milliseconds until this node's job ends; infinite if no end is known. */
  endsInMs(): number;
  /** Number of requests at this node's engine, which shares its GPUs with functions. */
  interactive(): number;
  log(line: string): void;
}

const WAIT_MS = 20_000;
const BACKOFF = { minMs: 500, maxMs: 30_000 };
const POLL_MS = 200;
/** Interval at which the list of gateways is read. */
const GATEWAYS_POLL_MS = 1_000;
/** After this many consecutive crashes the function is not tried here for a while. */
const CRASHES_MAX = 3;
/**
 * Milliseconds of work that is leased ahead. It is more than a request for a lease takes at a busy gateway, and little
 * enough that other nodes do not lack the lines.
 */
const AHEAD_MS = 1_000;
/**
 * If requests keep the engine busy for this long, leases are returned, because other nodes may be idle. Longer than a
 * usual response, so that a lease is not returned for one request.
 */
const YIELD_MS = 15_000;
/** Maximum number of leases that wait for a process. */
const READY_MAX = 32;

export class FunctionRunner {
  readonly #options: FunctionRunnerOptions;
  readonly #gateways: BatchGateways;
  readonly #pollTimer: NodeJS.Timeout;
  readonly #leases = new Set<LeaseRun>();
  /** At most one for each stored function. */
  readonly #sizes = new Map<string, CallSize>();
  /** Leases that wait for a process: at most READY_MAX, and one more for each gateway. */
  readonly #ready: LeasedLines[] = [];
  /** Leases with running lines: at most one for each process. */
  readonly #current = new Set<LeasedLines>();
  /** Callbacks that end a wait early: at most one for each loop. */
  readonly #waits = new Set<() => void>();
  #running = 0;
  #draining = false;

  constructor(options: FunctionRunnerOptions) {
    this.#options = options;
    this.#gateways = new BatchGateways({
      named: options.gateways,
      open: options.open,
      begin: (gateway, signal) => inBackground('functions', this.#take(gateway, signal), options.log),
      busy: (gateway) => [...this.#leases].some((lease) => lease.gateway === gateway),
      log: options.log,
    });
    for (let i = 0; i < options.workers; i++) inBackground('functions', this.#work(), options.log);
    this.#pollTimer = setInterval(() => this.#gateways.look(), GATEWAYS_POLL_MS);
    this.#gateways.look();
  }

  /** Number of lines that functions currently run. */
  get running(): number {
    return this.#running;
  }

  /** Begins no further calls. Returns leases when the running calls have ended, or when `signal` is aborted. */
  async drain(signal: AbortSignal): Promise<void> {
    this.#draining = true;
    this.#wake();
    while (this.#running > 0 && !signal.aborted) await pause(POLL_MS);
    this.#gateways.stop();
    await Promise.all([...this.#leases].map((lease) => lease.release()));
  }

  async close(): Promise<void> {
    this.#draining = true;
    this.#wake();
    clearInterval(this.#pollTimer);
    await Promise.all([this.#gateways.close(), this.#options.host.close()]);
  }

  /** Takes leases of one gateway while this agent works for it. */
  async #take(gateway: BatchGatewayClient, signal: AbortSignal): Promise<void> {
    const { admitted, host, owners, log } = this.#options;
    const failures = new RateLimitedLog(log);
    const backoff = new Backoff(BACKOFF, Math.random);
    while (!this.#draining && !signal.aborted) {
      if (!admitted() || !this.#wants) {
        await this.#pause();
        continue;
      }
      try {
        const asked = { ...(owners === undefined ? {} : { owners }), ...host.held };
        const lease = await gateway.leaseFunction(asked, WAIT_MS, signal);
        if (lease?.function !== undefined) await this.#prepare(gateway, { ...lease, function: lease.function }, signal);
        backoff.reset();
      } catch (error) {
        if (signal.aborted) return;
        if (isWorthALogLine(error, backoff.failures)) failures.log(`functions: ${errorText(error)}`);
        await pause(backoff.next());
      }
    }
  }

  /** True if a process has nothing to do, or will soon have nothing to do. */
  get #wants(): boolean {
    const uncommitted = [...this.#leases].reduce((sum, lease) => sum + lease.uncommittedBytes, 0);
    if (uncommitted >= UNCOMMITTED_MAX_BYTES || this.#ready.length >= READY_MAX) return false;
    const { workers, interactive } = this.#options;
    if (interactive() > 0) return false;
    if (this.#current.size + this.#ready.length < workers) return true;
    const now = performance.now();
    const leftMs = (one: LeasedLines) => one.leftMs(now) ?? Number.POSITIVE_INFINITY;
    const queuedMs = this.#ready.reduce((sum, one) => sum + leftMs(one), 0) / workers;
    return Math.min(...[...this.#current].map(leftMs)) + queuedMs < AHEAD_MS;
  }

  /** Fetches what a lease needs, and puts its lines into the queue of this node. */
  async #prepare(gateway: BatchGatewayClient, lease: FunctionLease, signal: AbortSignal): Promise<void> {
    const { owners, log } = this.#options;
    const work: LeaseRun = new LeaseRun(lease, gateway, {
      again: (lines) => leased?.repeat(lines),
      share: (keep) => work.share((leased?.share(keep, performance.now()) ?? []).map(({ line }) => line)),
      over: () => this.#leases.delete(work),
      log,
    });
    let leased: LeasedLines | undefined;
    this.#leases.add(work);
    try {
      if (owners?.includes(lease.function.owner) === false)
        throw new Error('this node does not allow functions of this owner');
      const code = await fetchFunction({ gateway, lease, host: this.#options.host, signal });
      const lines = work.linesOf(await gateway.chunk(lease, signal));
      leased = new LeasedLines({ lease, work, code, calls: this.#size(code), lines });
      this.#ready.push(leased);
      this.#wake();
    } catch (error) {
      await this.#release(work);
      throw error;
    }
  }

  async #release(work: LeaseRun): Promise<void> {
    if (this.#leases.delete(work)) await work.release();
  }

  /** Runs leased lines, one call after another. */
  async #work(): Promise<void> {
    const { host, log } = this.#options;
    const failures = new RateLimitedLog(log);
    while (!this.#draining) {
      const free = this.#ready.findIndex(({ code }) => host.hasFree(code.context));
      const [leased] = this.#ready.splice(Math.max(0, free), 1);
      if (leased === undefined) {
        await this.#pause();
        continue;
      }
      this.#current.add(leased);
      try {
        await this.#runLines(leased);
        inBackground('functions', this.#settle(leased), log);
      } catch (error) {
        if (!this.#draining) failures.log(`functions: ${errorText(error)}`);
        // The disk may be full. Without a pause this node would lease the same lines again and again.
        host.setBroken(leased.code.context);
        inBackground('functions', this.#release(leased.work), log);
      } finally {
        this.#current.delete(leased);
        this.#wake();
      }
    }
  }

  /** Waits until the gateway has accepted the results. Lines that it wants again return to the queue of this node. */
  async #settle(leased: LeasedLines): Promise<void> {
    const { work } = leased;
    await leased.settled();
    const runsAgain = leased.waiting.length > 0 && work.isValid && !this.#draining && this.#leases.has(work);
    if (!runsAgain) return this.#release(work);
    this.#ready.unshift(leased);
    this.#wake();
  }

  /**
   * Runs the lines until none waits. Ends earlier if the function fails to load or crashes repeatedly, if the lease is
   * no longer valid, or if the agent drains.
   */
  async #runLines(leased: LeasedLines): Promise<void> {
    const { host } = this.#options;
    const { work, code } = leased;
    while (leased.waiting.length > 0 && !this.#draining && work.isValid) {
      // Its lines run elsewhere, or here later: their attempts would be used up within a second.
      if (host.isBroken(code.context) || !(await this.#engineIsIdle())) return this.#release(work);
      if (leased.fitting(this.#options.endsInMs()) < 1) {
        // Otherwise this node would take the same lines again.
        host.setBroken(code.context, true);
        return this.#release(work);
      }
      let process: FunctionProcess;
      try {
        process = await host.acquire(code);
      } catch (error) {
        if (!(error instanceof LoadError) || this.#draining) throw error;
        return this.#cannotLoad(leased, error);
      }
      const lines = leased.begin(performance.now(), this.#options.endsInMs());
      const outcome = await runCall({
        process,
        host,
        leased,
        lines,
        isDraining: () => this.#draining,
        running: (change) => {
          this.#running += change;
        },
      }).finally(() => host.release(process));
      leased.end(lines, outcome);
      this.#wake();
      if (leased.crashes < CRASHES_MAX) continue;
      host.setBroken(code.context);
      await leased.settled();
      return this.#release(work);
    }
  }

  /** Waits until no request is at the engine. @returns false if this takes too long */
  async #engineIsIdle(): Promise<boolean> {
    const ends = performance.now() + YIELD_MS;
    while (this.#options.interactive() > 0) {
      if (performance.now() >= ends || this.#draining) return false;
      await pause(POLL_MS);
    }
    return true;
  }

  /** Returns the lines to the gateway. If the node lacks what the function declares, they do not count as failed. */
  async #cannotLoad(leased: LeasedLines, error: LoadError): Promise<void> {
    const {
      work,
      code: { context },
      waiting,
    } = leased;
    const { host, log } = this.#options;
    if (error instanceof UnsuitableNodeError) {
      log(`function ${context.slice(0, 12)}: declined: ${error.message}`);
      host.setBroken(context, true);
      this.#leases.delete(work);
      return work.release(error.message.slice(0, WHY_MAX));
    }
    host.setBroken(context);
    for (const { line } of waiting) work.add(failedLine(line, 'function_load_failed', error.message));
    await leased.settled();
    await this.#release(work);
  }

  #wake(): void {
    for (const end of [...this.#waits]) end();
  }

  /** Waits until something changes in the queue of this node. */
  #pause(): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        this.#waits.delete(end);
        resolve();
      };
      const timer = setTimeout(end, POLL_MS);
      this.#waits.add(end);
    });
  }

  /** The adaptive call size of one function. */
  #size({ context, options }: FunctionCode): CallSize {
    let size = this.#sizes.get(context);
    if (size === undefined) {
      for (const known of this.#sizes.keys())
        if (this.#options.host.stored(known) === undefined) this.#sizes.delete(known);
      size = new CallSize(options instanceof Error ? undefined : options.batch_size);
      this.#sizes.set(context, size);
    }
    return size;
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
