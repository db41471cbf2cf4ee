/** Lines of batches, run at this node's engine beside its requests. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { WHY_MAX } from '../../shared/batch/function.ts';
import type { GrantedLease } from '../../shared/batch/granted-lease.ts';
import { type EngineReading, LineWindow } from '../../shared/batch/window.ts';
import type { EngineTarget } from '../engine/address.ts';
import { FailureLog, LoggedBackoff } from './backoff.ts';
import type { LineOptions } from './engine-options.ts';
import { BatchGateway, type SessionCredentials } from './gateway-client.ts';
import { BatchGateways } from './gateways.ts';
import { LeaseWork, type PendingLine, UNCOMMITTED_MAX_BYTES } from './lease-work.ts';
import { LineClient } from './line-client.ts';

export interface BatchRunnerOptions {
  /** Gateways that this agent works for now. */
  gateways(): readonly URL[];
  proxy(gateway: URL): URL | undefined;
  /** Undefined while no gateway has admitted this agent. */
  speaker(): SessionCredentials | undefined;
  /** Undefined while no engine answers. */
  engine(): EngineTarget | undefined;
  /** Models that the engine has ready. */
  models(): string[];
  /** How busy the engine is, its lines of batches included. */
  reading(): Pick<EngineReading, 'running' | 'waiting' | 'kvUsed' | 'preemptions' | 'firstTokenMs'>;
  /** When the engine last showed that it computes, by `performance.now()`; undefined: it does not count. */
  computedAt(): number | undefined;
  /** Requests that are no lines of batches. */
  interactive(): number;
  /** Of the engine that runs now. */
  lines(): LineOptions;
  log(line: string): void;
}

/** The window is judged once a second. */
const TURN_MS = 1_000;
/** An agent without work waits at the gateway for so long. */
const WAIT_MS = 20_000;
/** A gateway that cannot be asked is asked again after this, then twice as long each time. */
const AGAIN_MS = { first: 500, most: 10_000 };
/** While no engine answers, or nothing can be taken. */
const LOOK_MS = 200;
/** A line that failed runs again after this. */
const RETRY_MS = 1_000;
/** Failures one after another that make an engine a broken one, and what it then rests after each. */
const FAILING_MAX = 8;
const REST_MS = { first: 2_000, most: 60_000 };
/** Lines wait here for as long as the engine takes for them: a lease takes tens of milliseconds, on a busy gateway more. */
const AHEAD_S = 0.5;
/** Share of the slots that stays free for requests. */
const RESERVE = 0.1;
const FIRST_TOKEN_LIMIT_MS = 2_000;

export class BatchRunner {
  readonly #options: BatchRunnerOptions;
  readonly #gateways: BatchGateways;
  readonly #window: LineWindow;
  readonly #leases = new Set<LeaseWork>();
  readonly #queue: PendingLine[] = [];
  readonly #turn: NodeJS.Timeout;
  #client: LineClient | undefined;
  #running = 0;
  #ended = 0;
  /** Of the last second. */
  #linesPerS = 0;
  #refused = 0;
  /** Failures one after another. */
  #failing = 0;
  #restsUntil = 0;
  #restMs: number = REST_MS.first;
  #prefix: number | undefined;
  #draining = false;
  /** Waits that end early. One that ends by itself leaves: at most a few of each gateway, and one of each line that runs again. */
  readonly #waits = new Set<() => void>();

  constructor(options: BatchRunnerOptions) {
    this.#options = options;
    this.#window = new LineWindow({
      slots: () => options.lines().slots,
      reserve: RESERVE,
      firstTokenLimitMs: FIRST_TOKEN_LIMIT_MS,
    });
    this.#gateways = new BatchGateways({
      named: options.gateways,
      open: (url) => new BatchGateway(url, options.speaker, options.proxy(url)),
      begin: (gateway, signal) => void this.#lease(gateway, signal),
      busy: (gateway) => [...this.#leases].some((lease) => lease.gateway === gateway),
    });
    this.#turn = setInterval(() => this.#judge(), TURN_MS);
    this.#gateways.look();
  }

  /** Lines at the engine now. */
  get running(): number {
    return this.#running;
  }

  /** Begins nothing; gives leases back when what runs has ended, or at `signal`. */
  async drain(signal: AbortSignal): Promise<void> {
    this.#draining = true;
    this.#wake();
    for (const { lease } of this.#queue.splice(0)) lease.drop(1);
    while (this.#running > 0 && !signal.aborted) await this.#pause(LOOK_MS);
    this.#abort();
    await Promise.all([...this.#leases].map((lease) => lease.release()));
  }

  async close(): Promise<void> {
    this.#draining = true;
    this.#abort();
    this.#wake();
    clearInterval(this.#turn);
    await Promise.all([this.#gateways.close(), this.#client?.close()]);
  }

  #abort(): void {
    this.#gateways.stop();
    for (const lease of this.#leases) lease.abort();
  }

  /** Takes leases of one gateway for as long as the agent works for it. */
  async #lease(gateway: BatchGateway, signal: AbortSignal): Promise<void> {
    const backoff = new LoggedBackoff(AGAIN_MS);
    const failures = new FailureLog(this.#options.log);
    while (!signal.aborted && !this.#draining) {
      if (!this.#wants()) {
        await this.#pause(LOOK_MS);
        continue;
      }
      try {
        const lease = await gateway.lease(this.#options.models(), this.#prefix, WAIT_MS, signal);
        if (lease !== undefined) await this.#take(gateway, lease, signal);
        // Not before: a gateway that leases, and has no chunk to give, would be asked twice a second.
        backoff.succeeded();
      } catch (error) {
        if (signal.aborted) return;
        failures.tell(`batches: ${error instanceof Error ? error.message : error}`);
        // No #pause: that ends each second.
        await sleep(backoff.failed(), undefined, { signal }).catch(() => {});
      }
    }
  }

  /** Lines wait here, so that the engine never waits for the gateway. */
  #wants(): boolean {
    const { engine, models, speaker: credentials } = this.#options;
    if (this.#isBroken && performance.now() < this.#restsUntil) return false;
    if (engine() === undefined || credentials() === undefined || models().length === 0) return false;
    return this.#queue.length <= this.#ahead && this.#uncommitted() < UNCOMMITTED_MAX_BYTES;
  }

  get #ahead(): number {
    return Math.max(this.#window.size / 2, this.#linesPerS * AHEAD_S);
  }

  async #take(gateway: BatchGateway, lease: GrantedLease, signal: AbortSignal): Promise<void> {
    const work: LeaseWork = new LeaseWork(lease, gateway, {
      again: (lines) => void this.#again(work, lines),
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

  /** Of lines that may have to run again. */
  readonly #bodies = new WeakMap<LeaseWork, Map<number, string>>();

  async #again(lease: LeaseWork, lines: readonly number[]): Promise<void> {
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
      if (next.lease.stands) void this.#run(next, target);
      else next.lease.drop(1);
    }
    if (this.#queue.length <= this.#ahead) this.#wake();
  }

  /** The gateway takes no more answers to the lines of this lease. */
  #drop(lease: LeaseWork): void {
    const queued = this.#queue.splice(0);
    this.#queue.push(...queued.filter((one) => one.lease !== lease));
    lease.drop(queued.length - this.#queue.length);
    this.#pump();
  }

  /** An engine that only fails gets one line at a time: it would take lines from healthy ones faster than these can run them. */
  get #places(): number {
    if (!this.#isBroken) return this.#window.beside(this.#options.interactive());
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

  /** Other nodes run what waits here, and this engine is tried ever more seldom. */
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
        // The engine is away, and the line is as good as before. When it does not come back, the lease goes back with the agent.
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
    void this.#client?.close();
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
