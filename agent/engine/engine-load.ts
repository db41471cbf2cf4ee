/** The engine's load, from its `/metrics` if it has that, and from the requests that this agent sent to it. */
import { setImmediate } from 'node:timers/promises';
import { Agent } from 'undici';
import type { EngineLoad } from '../../shared/routing/node-load.ts';
import { AdaptiveTimeout } from '../../shared/timing/adaptive-timeout.ts';
import { waitClock } from '../wait-clock.ts';
import type { EngineTarget } from './engine-address.ts';
import { askEngine } from './engine-request.ts';
import { metricPattern, metricValues, sum } from './prometheus-text.ts';
import { type EngineLimits, Saturation } from './saturation.ts';
import { TokenRate } from './token-rate.ts';

/** Minimum time between two readings. Gateways get the load at most twice a second. */
const POLL_MS = 500;
/** After this time a reading is less exact than this agent's own count of requests, and is ignored. */
const READING_MS = 2_000;
/** An engine without metrics is asked again after this time. */
const ABSENT_MS = 60_000;
const METRICS = { leastMs: 1_000, mostMs: 20_000 };
/** Maximum size of `/metrics`. vLLM's histograms have about 200 KiB. */
const METRICS_MAX_BYTES = 4 * 1024 * 1024;

const RUNNING = metricPattern(
  'vllm:num_requests_running',
  'sglang:num_running_reqs',
  'lmdeploy:num_requests_running',
  'trtllm:num_requests_running',
  'llamacpp:requests_processing',
  'tgi_batch_current_size',
);
const WAITING = metricPattern(
  'vllm:num_requests_waiting',
  'sglang:num_queue_reqs',
  'lmdeploy:num_requests_waiting',
  'trtllm:num_requests_waiting',
  'llamacpp:requests_deferred',
  'tgi_queue_size',
);
/** Share of the KV cache in use, from 0 to 1. The second name is vLLM's older name. */
const KV_USE = metricPattern(
  'vllm:kv_cache_usage_perc',
  'vllm:gpu_cache_usage_perc',
  'sglang:token_usage',
  'lmdeploy:gpu_cache_usage_perc',
  'llamacpp:kv_cache_usage_ratio',
);

/**
 * Counter of sequences that lost their place in the KV cache. Only vLLM has one: SGLang has a gauge of the sequences
 * that wait for a place again.
 */
const PREEMPTIONS = metricPattern('vllm:num_preemptions(?:_total)?');

/**
 * Reads Prometheus text. If several engines run behind one port, counts are summed, and the cache usage is that of the
 * fullest engine. Undefined if the text has no such values.
 */
export function readLoad(text: string): EngineLoad | undefined {
  const running = metricValues(text, RUNNING);
  if (running.length === 0) return undefined;
  const kv = metricValues(text, KV_USE);
  return {
    running: Math.round(sum(running)),
    waiting: Math.round(sum(metricValues(text, WAITING))),
    ...(kv.length === 0 ? {} : { kvUse: Math.min(1, Math.max(...kv)) }),
  };
}

/**
 * Counters that grow with every step of an engine, so that they show even during a long prefill that the engine
 * computes. vLLM counts steps, SGLang the tokens of a chunk.
 */
const COMPUTED = [
  'vllm:iteration_tokens_total_count',
  'vllm:prompt_tokens_total',
  'vllm:generation_tokens_total',
  'sglang:prompt_tokens_total',
  'sglang:generation_tokens_total',
  'lmdeploy:prompt_tokens_total',
  'lmdeploy:generation_tokens_total',
  'llamacpp:n_decode_total',
].map((name) => metricPattern(name));

interface Reading {
  load: EngineLoad;
  /** Number of requests of this agent at the time of the reading. */
  own: number;
  /** Number of batch lines at the time of the reading. */
  background: number;
  at: number;
}

/**
 * The load meter that all paths to the engine share: every gateway's tunnel, and the mesh. It reads the metrics only
 * while requests run.
 */
export class LoadMeter {
  readonly #engine: () => EngineTarget | undefined;
  readonly #limits: EngineLimits;
  readonly #saturation = new Saturation();
  readonly #rate = new TokenRate();
  /**
   * Timeout of `/metrics`. The HTTP client below has its own connection, so that a proxy from the agent's environment
   * is never used for the engine.
   */
  readonly #answers = new AdaptiveTimeout(METRICS);
  readonly #agent = new Agent({ connections: 1, pipelining: 1, connectTimeout: METRICS.mostMs });
  /** Number of requests of this agent at the engine. */
  #own = 0;
  /**
   * Returns the number of batch lines at the engine. They yield to requests, so the load that gateways get excludes
   * them.
   */
  #background: () => number = () => 0;
  #onLost: () => void = () => {};
  #reading: Reading | undefined;
  #preemptions: number | undefined;
  /** The slowest first token since the last `takeFirstTokenMs`. */
  #firstTokenMs = 0;
  #receivedAt = Number.NEGATIVE_INFINITY;
  /** True if the last reading had the numbers of both running and waiting requests. */
  #reportsQueue = false;
  /** True if the last reading had a counter of computed tokens or steps. */
  #counts = false;
  /** Sum of the counters of COMPUTED in the last reading. */
  #computed = 0;
  #nextLook = 0;
  #looking: Promise<void> | undefined;

  /** @param engine the engine's address; undefined while no engine answers */
  constructor(engine: () => EngineTarget | undefined, limits: EngineLimits = {}) {
    this.#engine = engine;
    this.#limits = limits;
  }

  /** Excludes work from the load: `background` is subtracted from every reading. */
  leaveOut(background: () => number): void {
    this.#background = background;
  }

  begin(): void {
    this.#own++;
  }

  end(): void {
    this.#own--;
    this.look();
  }

  /** A response began to stream `ms` milliseconds after its request. */
  firstToken(ms: number): void {
    this.#firstTokenMs = Math.max(this.#firstTokenMs, ms);
  }

  onReceived(): void {
    this.#receivedAt = performance.now();
  }

  /** @param look called if a response suggests that the engine may have lost its model */
  onLost(look: () => void): void {
    this.#onLost = look;
  }

  lost(): void {
    this.#onLost();
  }

  /** When the engine last sent a chunk of a response, or its counters last grew; by `performance.now()`. */
  get heardAt(): number {
    return this.#receivedAt;
  }

  /** True if the engine reported its running and waiting requests in the last reading. */
  get tellsQueue(): boolean {
    return this.#reportsQueue;
  }

  /** True if the engine reported counters of its work in the last reading. */
  get counts(): boolean {
    return this.#counts;
  }

  /** Number of this agent's requests and batch lines at the engine. */
  get waiting(): number {
    return this.#own + this.#background();
  }

  /** Number of requests and lines in the engine's queue; 0 if the engine does not report it. */
  get queued(): number {
    return this.#known?.load.waiting ?? 0;
  }

  /** The slowest first token of requests since the last call, in milliseconds; 0 if no response began. */
  takeFirstTokenMs(): number {
    const ms = this.#firstTokenMs;
    this.#firstTokenMs = 0;
    return ms;
  }

  /** Preemptions since the engine's start; undefined if the engine does not report them. */
  get preemptions(): number | undefined {
    return this.#preemptions;
  }

  /** The current load: the last reading, plus the requests that began and minus those that ended since. */
  get current(): EngineLoad {
    const reading = this.#known;
    const total = this.#total(reading);
    const load = { ...reading?.load, ...this.#saturation.split(total) };
    // Without requests the token rate is 0. The last reading has a rate from the time when requests ran.
    return total > 0 || load.tokensPerSecond === undefined ? load : { ...load, tokensPerSecond: 0 };
  }

  /** Why the engine should get no more requests now; undefined if it may get more. */
  get full(): string | undefined {
    const why = this.#saturation.full(this.#total(this.#known), this.#limits);
    if (why !== undefined) this.look();
    return why;
  }

  get #known(): Reading | undefined {
    const reading = this.#reading;
    return reading === undefined || performance.now() - reading.at > READING_MS ? undefined : reading;
  }

  /** Number of requests at the engine. The reading may also count requests of clients that do not use this agent. */
  #total(reading: Reading | undefined): number {
    if (reading === undefined) return this.#own;
    const { load, own, background } = reading;
    return Math.max(this.#own, load.running + load.waiting + this.#own - own - background);
  }

  /** Resolves when the reading in progress has ended. */
  async settled(): Promise<void> {
    await this.#looking;
  }

  /** Reads the engine's metrics, unless that was done moments ago. No caller waits for the answer. */
  look(): void {
    const target = this.#engine();
    if (target === undefined || this.#looking !== undefined || performance.now() < this.#nextLook) return;
    this.#nextLook = performance.now() + POLL_MS;
    this.#looking = this.#read(target).finally(() => {
      this.#looking = undefined;
    });
  }

  async #read(target: EngineTarget): Promise<void> {
    // The frames of this turn of the event loop, such as the response that caused this reading, are sent first.
    await setImmediate();
    const own = this.#own;
    const background = this.#background();
    try {
      const { status, text = '' } = await waitClock.call(this.#answers, (signal) =>
        askEngine(target, target.metricsPath ?? '/metrics', {
          dispatcher: this.#agent,
          signal,
          maxBytes: METRICS_MAX_BYTES,
        }),
      );
      const load = status === 200 ? readLoad(text) : undefined;
      this.#reportsQueue = load !== undefined;
      if (load === undefined) this.#nextLook = performance.now() + ABSENT_MS;
      else {
        const at = performance.now();
        const tokensPerSecond = this.#rate.observe(text, at);
        const counters = COMPUTED.flatMap((counter) => metricValues(text, counter));
        this.#counts = counters.length > 0;
        const computed = sum(counters);
        if (computed !== this.#computed) this.onReceived();
        this.#computed = computed;
        const preemptions = metricValues(text, PREEMPTIONS);
        this.#preemptions = preemptions.length === 0 ? undefined : sum(preemptions);
        this.#reading = {
          load: { ...load, ...(tokensPerSecond === undefined ? {} : { tokensPerSecond }) },
          own,
          background,
          at,
        };
        this.#saturation.observe(load);
      }
    } catch {
      // during a prefill the engine's HTTP server may not answer; then the agent's own count is used
    }
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}
