/** How busy the engine is, from its `/metrics` where it has one, and from what this agent itself has given it. */
import { Agent, request } from 'undici';
import type { EngineLoad } from '../../shared/routing/load.ts';
import { AdaptiveTimeout } from '../../shared/timing/adaptive-timeout.ts';
import { waitClock } from '../wait-clock.ts';
import type { EngineTarget } from './address.ts';
import { metricPattern, metricValues, sum } from './metrics.ts';
import { type EngineLimits, Saturation } from './saturation.ts';
import { TokenRate } from './token-rate.ts';

/** Between two looks. Gateways are told twice a second at most. */
const LOOK_EVERY_MS = 500;
/** A reading that is older says less than our own count. */
const READING_MS = 2_000;
/** An engine without metrics is asked again after this. */
const ABSENT_MS = 60_000;
const METRICS = { leastMs: 1_000, mostMs: 20_000 };
/** vLLM's histograms are some 200 KiB. */
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
/** From 0 to 1; vLLM's older name of it, too. */
const KV_USE = metricPattern(
  'vllm:kv_cache_usage_perc',
  'vllm:gpu_cache_usage_perc',
  'sglang:token_usage',
  'lmdeploy:gpu_cache_usage_perc',
  'llamacpp:kv_cache_usage_ratio',
);

/** Sequences that lost their place in the cache. vLLM counts them; SGLang's gauge says how many wait for it back. */
const PREEMPTIONS = metricPattern('vllm:num_preemptions(?:_total)?');

/** Reads Prometheus text; of an engine that runs several times behind one port the sum, and the fullest cache. Undefined: not told. */
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

/** What grows with every step of an engine, so that a long prefill is seen: vLLM counts each, SGLang the tokens of a chunk. */
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
  /** Requests of this agent then. */
  own: number;
  /** Lines of batches then. */
  background: number;
  at: number;
}

/** One for all ways to the engine: every gateway's tunnel and the mesh. Looks only while requests run. */
export class LoadMeter {
  readonly #engine: () => EngineTarget | undefined;
  readonly #limits: EngineLimits;
  readonly #saturation = new Saturation();
  readonly #rate = new TokenRate();
  /** Its own connections: a proxy set for the agent's environment must not stand between it and its engine. */
  readonly #answers = new AdaptiveTimeout(METRICS);
  readonly #agent = new Agent({ connections: 1, pipelining: 1, connectTimeout: METRICS.mostMs });
  /** Requests that this agent has given to the engine. */
  #own = 0;
  /** Lines of batches at the engine. They give way to requests, so the load that gateways hear of leaves them out. */
  #background: () => number = () => 0;
  #onLost: () => void = () => {};
  #reading: Reading | undefined;
  #preemptions: number | undefined;
  /** Slowest since it was last taken. */
  #firstTokenMs = 0;
  #heardAt = Number.NEGATIVE_INFINITY;
  /** Its last answer told how many requests it has. */
  #tellsQueue = false;
  /** It told some count of what it computed. */
  #counts = false;
  /** Tokens that it has read and written, by its own count. */
  #computed = 0;
  #nextLook = 0;
  #looking: Promise<void> | undefined;

  /** `engine`: undefined while none answers. */
  constructor(engine: () => EngineTarget | undefined, limits: EngineLimits = {}) {
    this.#engine = engine;
    this.#limits = limits;
  }

  /** What runs at the engine and is no load: counted out of every reading. */
  leaveOut(background: () => number): void {
    this.#background = background;
  }

  begin(): void {
    this.#own++;
    this.look();
  }

  end(): void {
    this.#own--;
    this.look();
  }

  /** A stream of a request has begun, after so long. */
  firstToken(ms: number): void {
    this.#firstTokenMs = Math.max(this.#firstTokenMs, ms);
  }

  heard(): void {
    this.#heardAt = performance.now();
  }

  /** `look`: called when an answer says that the engine may not have its model any more. */
  onLost(look: () => void): void {
    this.#onLost = look;
  }

  lost(): void {
    this.#onLost();
  }

  /** When the engine last gave a piece of an answer, or was seen to compute; by `performance.now`. */
  get heardAt(): number {
    return this.#heardAt;
  }

  /** Whether the engine tells how many requests run and wait, as far as it could be read. */
  get tellsQueue(): boolean {
    return this.#tellsQueue;
  }

  /** Whether the engine counts what it computes, as far as it could be read. */
  get counts(): boolean {
    return this.#counts;
  }

  /** Requests and lines of batches that this agent has at the engine. */
  get waiting(): number {
    return this.#own + this.#background();
  }

  /** Requests and lines that wait in the engine's own queue; 0 also where it does not tell. */
  get queued(): number {
    return this.#known?.load.waiting ?? 0;
  }

  /** Milliseconds; the slowest first token of requests since the last call, 0 where there was none. */
  takeFirstTokenMs(): number {
    const ms = this.#firstTokenMs;
    this.#firstTokenMs = 0;
    return ms;
  }

  /** Since the engine began; undefined: it does not tell. */
  get preemptions(): number | undefined {
    return this.#preemptions;
  }

  /** As it is now: the last reading, and what has come and gone since. */
  get current(): EngineLoad {
    const reading = this.#known;
    const total = this.#total(reading);
    const load = { ...reading?.load, ...this.#saturation.split(total) };
    // The last reading was of the time when something ran.
    return total > 0 || load.tokensPerSecond === undefined ? load : { ...load, tokensPerSecond: 0 };
  }

  /** Why the engine should get no more at this moment; undefined where it should. */
  get full(): string | undefined {
    const why = this.#saturation.full(this.#total(this.#known), this.#limits);
    if (why !== undefined) this.look();
    return why;
  }

  get #known(): Reading | undefined {
    const reading = this.#reading;
    return reading === undefined || performance.now() - reading.at > READING_MS ? undefined : reading;
  }

  /** Others may ask the engine too, past this agent. */
  #total(reading: Reading | undefined): number {
    if (reading === undefined) return this.#own;
    const { load, own, background } = reading;
    return Math.max(this.#own, load.running + load.waiting + this.#own - own - background);
  }

  /** Resolves when the look that is under way is over. */
  async settled(): Promise<void> {
    await this.#looking;
  }

  /** Asks the engine, unless it was asked a moment ago; no caller waits for its answer. */
  look(): void {
    const target = this.#engine();
    if (target === undefined || this.#looking !== undefined || performance.now() < this.#nextLook) return;
    this.#nextLook = performance.now() + LOOK_EVERY_MS;
    this.#looking = this.#read(target).finally(() => {
      this.#looking = undefined;
    });
  }

  async #read({ origin, pathPrefix, key }: EngineTarget): Promise<void> {
    const own = this.#own;
    const background = this.#background();
    try {
      const { statusCode, text } = await waitClock.call(this.#answers, async (signal) => {
        const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
        const response = await request(`${origin}${pathPrefix}/metrics`, { dispatcher: this.#agent, signal, headers });
        return { statusCode: response.statusCode, text: await textOf(response.body) };
      });
      const load = statusCode === 200 ? readLoad(text) : undefined;
      this.#tellsQueue = load !== undefined;
      if (load === undefined) this.#nextLook = performance.now() + ABSENT_MS;
      else {
        const at = performance.now();
        const tokensPerSecond = this.#rate.observe(text, at);
        const counters = COMPUTED.flatMap((counter) => metricValues(text, counter));
        this.#counts = counters.length > 0;
        const computed = sum(counters);
        if (computed !== this.#computed) this.heard();
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
      // an engine in prefill may leave its HTTP server waiting: the own count goes on
    }
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}

async function textOf(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > METRICS_MAX_BYTES) return '';
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
