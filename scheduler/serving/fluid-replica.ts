import { cacheLayout, freeBytes, sequenceBytes } from '../roofline/deployment.ts';
import type { StepModel } from '../roofline/step-model.ts';
import { replicaLimits, type SimulatedEngineLimits } from './engine-limits.ts';

/** Mean and mean square of a distribution of lengths, tokens: all that averages need. */
export interface Moments {
  input: { mean: number; square: number };
  output: { mean: number; square: number };
}

interface FluidState {
  /** Mean number of sequences in the batch. */
  batch: number;
  /** Mean seconds per step, including prompts. */
  stepS: number;
  /** Requests per second that end. */
  rate: number;
  /** Mean seconds. */
  ttftS: number;
  latencyS: number;
}

/**
 * The part of requests that an engine computes: a prefill engine's responses have one token, a decode engine receives
 * computed prompts.
 */
type Phase = 'both' | 'prefill' | 'decode';

/** The input of bounds on a replica. */
export interface FluidLike {
  readonly maxSequences: number;
  readonly batchMax: number;
  readonly isPair: boolean;
  /** The maximum throughput. */
  saturated(): Pick<FluidState, 'rate'>;
  /** The state at `rate` requests/s if no request waited for a free place in the batch. */
  unqueued(rate: number): Pick<FluidState, 'latencyS'>;
}

/**
 * A replica described by averages instead of events: thousands of candidates take the time of one simulation. The
 * chosen ones are simulated afterwards.
 */
export class Fluid implements FluidLike {
  readonly #step: StepModel;
  readonly #moments: Moments;
  readonly #context: number;
  readonly #pairs: number;
  readonly #windowPairs: number;
  readonly #phase: Phase;
  /** The engine's limit. */
  readonly maxSequences: number;
  readonly isPair = false;
  /** Largest mean batch: the engine's limit, or the memory's. */
  readonly batchMax: number;

  constructor(step: StepModel, limits: SimulatedEngineLimits, asked: Moments, phase: Phase = 'both') {
    this.#step = step;
    const moments = phase === 'prefill' ? { ...asked, output: { mean: 1, square: 1 } } : asked;
    this.#moments = moments;
    this.#phase = phase;
    const { input, output } = moments;
    // Long responses are more frequent in a batch than among arrivals: their mean context is length-biased.
    this.#context = input.mean + output.square / (2 * output.mean);
    this.#pairs = phase === 'decode' ? 0 : input.square / 2;
    this.#windowPairs = Math.min(this.#pairs, input.mean * step.window);
    const { maxSequences } = replicaLimits(limits, step.deployment);
    this.maxSequences = maxSequences;
    // Prompts enter when they fit and grow from there, so a full memory is nearly full: half a block per sequence is
    // lost.
    const each = sequenceBytes(cacheLayout(step.deployment), this.#context + limits.blockTokens / 2);
    this.batchMax = Math.max(0, Math.min(maxSequences, freeBytes(step.deployment, limits.memoryFraction) / each));
  }

  /**
   * Mean seconds of a step with `batch` sequences. Each step ends batch/output sequences and begins the same number.
   */
  #stepSeconds(batch: number): number {
    const { input, output } = this.#moments;
    const begins = batch / output.mean;
    const step = this.#step;
    const decoding = this.#phase === 'decode' ? batch : batch * (1 - 1 / output.mean);
    const tokens = decoding + (this.#phase === 'decode' ? 0 : begins * input.mean);
    const low = Math.max(1, Math.floor(tokens));
    const share = Math.max(0, tokens - low);
    const linear = step.linear(low) * (1 - share) + step.linear(low + 1) * share;
    const seen = Math.min(this.#context, step.window);
    const attention =
      decoding * (this.#context * step.secondsPerContextToken + seen * step.secondsPerWindowToken) +
      step.pairsSeconds(begins * this.#pairs, begins * this.#windowPairs);
    return linear + attention + step.overheadSeconds(Math.max(1, Math.round(batch)));
  }

  /** The maximum throughput. A full memory preempts and recomputes, which averages do not include. */
  saturated(): FluidState {
    const state = this.#state(this.batchMax, 0);
    return { ...state, rate: state.rate * (this.batchMax < this.maxSequences ? FULL_MEMORY : FULL_BATCH) };
  }

  /**
   * The state at `rate` requests/s if no request waited for a free place in the batch: a lower bound of simulated
   * latencies, except for effects that averages hide.
   */
  unqueued(rate: number): FluidState {
    return this.#state(Math.max(this.#batchAt(rate), Math.min(1, rate)), 0);
  }

  /** Mean number of sequences in the batch that ends `rate` requests/s. */
  #batchAt(rate: number): number {
    const { output } = this.#moments;
    let low = 0;
    let high = this.batchMax;
    for (let i = 0; i < 40; i++) {
      const middle = (low + high) / 2;
      if (middle / (output.mean * this.#stepSeconds(Math.max(middle, 1e-6))) < rate) low = middle;
      else high = middle;
    }
    return (low + high) / 2;
  }

  /**
   * The state at `rate` requests/s, which must be below the rate of `saturated`. The variation of arrivals and service
   * times causes the queue.
   */
  at(rate: number, cv = 1): FluidState {
    const { output } = this.#moments;
    const batch = this.#batchAt(rate);
    const full = this.saturated();
    const rho = Math.min(0.999, rate / full.rate);
    // Sakasegawa's (1977) M/G/c wait, with the batch's places as servers.
    const places = Math.max(1, this.batchMax);
    const service = places / full.rate;
    const variation = (cv * cv + output.square / output.mean ** 2 - 1) / 2;
    const wait = (variation * rho ** (Math.sqrt(2 * (places + 1)) - 1) * service) / (places * (1 - rho));
    return this.#state(Math.max(batch, Math.min(1, rate)), wait);
  }

  #state(batch: number, waitS: number): FluidState {
    const { input, output } = this.#moments;
    const stepS = this.#stepSeconds(Math.max(batch, 1e-6));
    if (this.#phase === 'decode') {
      const latencyS = waitS + output.mean * stepS;
      return { batch, stepS, rate: batch / (output.mean * stepS), ttftS: waitS + stepS, latencyS };
    }
    const alone =
      this.#step.linear(Math.max(1, Math.round(input.mean))) + this.#step.pairsSeconds(this.#pairs, this.#windowPairs);
    const ttftS = waitS + stepS / 2 + alone + this.#step.host.request_ms * 1e-3;
    return { batch, stepS, rate: batch / (output.mean * stepS), ttftS, latencyS: ttftS + (output.mean - 1) * stepS };
  }
}

/** Shares of the averages' throughput that simulations reach, if the memory or the engine's limit bounds the batch. */
const FULL_MEMORY = 0.87;
const FULL_BATCH = 0.97;
