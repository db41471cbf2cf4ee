/** Runs lines of batches at this node's engine, in addition to its requests. */

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { WHY_MAX } from '../../shared/batch/function-context.ts';
import type { GrantedLease } from '../../shared/batch/granted-lease.ts';
import { type EngineReading, LineConcurrency } from '../../shared/batch/line-concurrency.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { Backoff } from '../../shared/timing/backoff.ts';
import { inBackground } from '../../shared/timing/in-background.ts';
import type { EngineTarget } from '../engine/engine-address.ts';
import { BatchGatewayClient, isWorthALogLine, type SessionCredentials } from './batch-gateway-client.ts';
import { BatchGateways } from './batch-gateways.ts';
import { LeaseRun, type PendingLine, UNCOMMITTED_MAX_BYTES } from './lease-run.ts';
import { LineClient } from './line-client.ts';
import type { LineOptions } from './line-options.ts';
import { RateLimitedLog } from './rate-limited-log.ts';

interface BatchRunnerOptions {
  /** Gateways for which this agent currently works. */
  gateways(): readonly URL[];
  proxy(gateway: URL): URL | undefined;
  /** Undefined while no gateway has admitted this agent. */
  credentials(): SessionCredentials | undefined;
  /** Undefined while no engine answers. */
  engine(): EngineTarget | undefined;
  /** Models that the engine can serve now. */
  models(): string[];
  /** The engine's load, including lines of batches. */
  reading(): Pick<EngineReading, 'running' | 'waiting' | 'kvUsed' | 'preemptions' | 'firstTokenMs'>;
  /** When the engine last showed that it computes, by `performance.now()`; undefined: it has no counters. */
  computedAt(): number | undefined;
  /** Number of requests at the engine that are not lines of batches. */
  interactive(): number;
  /** Options of the current engine. */
  lines(): LineOptions;
  log(line: string): void;
}

/** Interval at which the number of concurrent lines is adjusted. */
const TURN_MS = 1_000;
/** How long the gateway may hold the lease request of an agent without work. */
const WAIT_MS = 20_000;
/** Wait after a failed request to a gateway. It doubles with each consecutive failure. */
const BACKOFF = { minMs: 500, maxMs: 10_000 };
/** Interval of checks while no engine answers, or no lease can be taken. */
const POLL_MS = 200;
/** Wait before a failed line runs again. */
const RETRY_MS = 1_000;
/** After this many consecutive failures the engine counts as broken, and rests after each further failure. */
const FAILING_MAX = 8;
const REST_MS = { first: 2_000, most: 60_000 };
/**
 * Seconds of work that is leased in advance. A request for a lease takes tens of milliseconds, and more if the gateway
 * is busy.
 */
const AHEAD_S = 0.5;
/** Share of the engine's slots that batches leave to requests. */
const RESERVE = 0.1;
const FIRST_TOKEN_LIMIT_MS = 2_000;

export class BatchRunner {
  readonly #options: BatchRunnerOptions;
  readonly #gateways: BatchGateways;
  readonly #window: LineConcurrency;
  readonly #leases = new Set<LeaseRun>();
  readonly #queue: PendingLine[] = [];
  readonly #timer: NodeJS.Timeout;
  #client: LineClient | undefined;
  #running = 0;
  #ended = 0;
  /** Lines that ended in the last second. */
  #linesPerS = 0;
  #refused = 0;
  /** Consecutive failed lines. */
  #failing = 0;
  #restsUntil = 0;
  #restMs: number = REST_MS.first;
  #prefix: number | undefined;
  #draining = false;
  /**
   * Callbacks that end a wait early. A wait removes its callback when it ends. At most a few callbacks for each
   * gateway, and one for each line that runs again.
   */
  readonly #waits = new Set<() => void>();

  constructor(options: BatchRunnerOptions) {
    this.#options = options;
    this.#window = new LineConcurrency({
      slots: () => options.lines().slots,
      reserve: RESERVE,
      firstTokenLimitMs: FIRST_TOKEN_LIMIT_MS,
    });
    this.#gateways = new BatchGateways({
      named: options.gateways,
      open: (url) => new BatchGatewayClient(url, options.credentials, options.proxy(url)),
      begin: (gateway, signal) => inBackground('batches', this.#lease(gateway, signal), options.log),
      busy: (gateway) => [...this.#leases].some((lease) => lease.gateway === gateway),
      log: options.log,
    });
    this.#timer = setInterval(() => this.#judge(), TURN_MS);
    this.#gateways.look();
  }

  /** Number of lines at the engine now. */
  get running(): number {
    return this.#running;
  }

  /** Begins no further lines. Returns leases when the running lines have ended, or when `signal` is aborted. */
  async drain(signal: AbortSignal): Promise<void> {
    this.#draining = true;
    this.#wake();
    for (const { lease } of this.#queue.splice(0)) lease.drop(1);
    while (this.#running > 0 && !signal.aborted) await this.#pause(POLL_MS);
    this.#abort();
    await Promise.all([...this.#leases].map((lease) => lease.release()));
  }

  async close(): Promise<void> {
    this.#draining = true;
    this.#abort();
    this.#wake();
    clearInterval(this.#timer);
    await Promise.all([this.#gateways.close(), this.#client?.close()]);
  }

  #abort(): void {
    this.#gateways.stop();
    for (const lease of this.#leases) lease.abort();
  }

  /** Takes leases of one gateway while the agent works for it. */
  async #lease(gateway: BatchGatewayClient, signal: AbortSignal): Promise<void> {
    const backoff = new Backoff(BACKOFF, Math.random);
    const failures = new RateLimitedLog(this.#options.log);
    while (!signal.aborted && !this.#draining) {
      if (!this.#wants()) {
        await this.#pause(POLL_MS);
        continue;
      }
      try {
        const lease = await gateway.lease(this.#options.models(), this.#prefix, WAIT_MS, signal);
        if (lease !== undefined) await this.#take(gateway, lease, signal);
        // Reset only here, when the lease's chunk has arrived. Otherwise a gateway that grants leases but cannot send
        // their chunks would be asked twice a second.
        backoff.reset();
      } catch (error) {
        if (signal.aborted) return;
        if (isWorthALogLine(error, backoff.failures)) failures.log(`batches: ${errorText(error)}`);
        // Do not use `#pause` here, because it ends every second.
        await sleep(backoff.next(), undefined, { signal }).catch(() => {});
      }
    }
  }

  /** True if more lines should be leased in advance, so that the engine never waits for the gateway. */
  #wants(): boolean {
    const { engine, models, credentials } = this.#options;
    if (this.#isBroken && performance.now() < this.#restsUntil) return false;
    if (engine() === undefined || credentials() === undefined || models().length === 0) return false;
    return this.#queue.length <= this.#ahead && this.#uncommitted() < UNCOMMITTED_MAX_BYTES;
  }

  get #ahead(): number {
    return Math.max(this.#window.size / 2, this.#linesPerS * AHEAD_S);
  }

  async #take(gateway: BatchGatewayClient, lease: GrantedLease, signal: AbortSignal): Promise<void> {
    const work: LeaseRun = new LeaseRun(lease, gateway, {
      again: (lines) => inBackground('batches', this.#retryLines(work, lines), this.#options.log),
      elsewhere: () => this.#giveBack(),
      stopped: () => this.#drop(work),
      over: () => this.#leases.delete(work),
      log: this.#options.log,
    });
    this.#leases.add(work);
    try {
      const chunk = await gateway.chunk(lease, signal);
      this.#prefix = lease.prefix;
      const lines = work.linesOf(chunk, this.#options.lines().priority);
      this.#bodies.set(work, new Map(lines.map(({ line, body }) => [line, body])));
      this.#queue.push(...lines);
      this.#pump();
    } catch (error) {
      this.#leases.delete(work);
      await work.release();
      throw error;
    }
  }

  /** Bodies of lines that may run again. */
  readonly #bodies = new WeakMap<LeaseRun, Map<number, string>>();

  async #retryLines(lease: LeaseRun, lines: readonly number[]): Promise<void> {
    await this.#pause(RETRY_MS);
    for (const line of lines) {
      const body = this.#bodies.get(lease)?.get(line);
      if (this.#draining) lease.drop(1);
      else if (body === undefined) lease.giveBack(1);
      else this.#queue.push({ lease, line, body });
    }
    this.#pump();
  }

  #pump(): void {
    const target = this.#options.engine();
    while (target !== undefined && !this.#draining && this.#running < this.#places) {
      const next = this.#queue.shift();
      if (next === undefined) return this.#wake();
      if (next.lease.isValid) inBackground('batches', this.#run(next, target), this.#options.log);
      else next.lease.drop(1);
    }
    if (this.#queue.length <= this.#ahead) this.#wake();
  }

  /** The gateway no longer accepts results of this lease's lines. */
  #drop(lease: LeaseRun): void {
    const queued = this.#queue.splice(0);
    this.#queue.push(...queued.filter((one) => one.lease !== lease));
    lease.drop(queued.length - this.#queue.length);
    this.#pump();
  }

  /**
   * Maximum number of lines that may run now. A broken engine gets one line at a time. Otherwise it would fail lines
   * faster than healthy engines can run them.
   */
  get #places(): number {
    if (!this.#isBroken) return this.#window.limitWith(this.#options.interactive());
    return performance.now() >= this.#restsUntil ? 1 : 0;
  }

  get #isBroken(): boolean {
    return this.#failing >= FAILING_MAX;
  }

  #failed(): void {
    this.#refused += 1;
    this.#failing += 1;
    this.#restsUntil = performance.now() + this.#restMs;
  }

  #answered(): void {
    this.#failing = 0;
    this.#restMs = REST_MS.first;
  }

  /**
   * If the engine counts as broken, gives its waiting lines to other nodes, and doubles the time until the engine is
   * tried again.
   */
  #giveBack(): void {
    if (!this.#isBroken) return;
    this.#restMs = Math.min(REST_MS.most, this.#restMs * 2);
    for (const { lease } of this.#queue.splice(0)) lease.giveBack(1);
  }

  async #run(pending: PendingLine, target: EngineTarget): Promise<void> {
    this.#running += 1;
    const requestId = randomUUID();
    const { lease, line, body } = pending;
    const answer = await this.#clientOf(target).run(lease.lease.endpoint, body, requestId, lease.signal);
    this.#running -= 1;
    switch (answer.kind) {
      case 'answered':
        this.#ended += 1;
        if (answer.status === 404 || answer.status === 429 || answer.status >= 500) this.#failed();
        else this.#answered();
        lease.add({ line, status_code: answer.status, request_id: requestId, body: answer.body });
        break;
      case 'failed':
        this.#failed();
        lease.add({
          line,
          status_code: 0,
          request_id: requestId,
          body: '',
          error: 'engine_failed',
          why: answer.why.slice(0, WHY_MAX),
        });
        break;
      case 'gone':
        // The engine cannot be reached, so run the line again later. If the engine does not return, the lease is
        // released when the agent ends.
        await this.#pause(RETRY_MS);
        this.#queue.unshift(pending);
        break;
      case 'aborted':
        lease.drop(1);
        break;
    }
    this.#pump();
  }

  #clientOf(target: EngineTarget): LineClient {
    if (this.#client?.target === target) return this.#client;
    inBackground('batches', this.#client?.close(), this.#options.log);
    this.#client = new LineClient(target, this.#options.computedAt);
    return this.#client;
  }

  #judge(): void {
    this.#window.read({
      ...this.#options.reading(),
      linesPerS: this.#ended,
      refused: this.#refused,
      interactive: this.#options.interactive(),
    });
    this.#gateways.look();
    this.#linesPerS = this.#ended;
    this.#ended = 0;
    this.#refused = 0;
    this.#pump();
  }

  #uncommitted(): number {
    return [...this.#leases].reduce((sum, lease) => sum + lease.uncommittedBytes, 0);
  }

  #wake(): void {
    for (const end of [...this.#waits]) end();
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        this.#waits.delete(end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      this.#waits.add(end);
    });
  }
}
