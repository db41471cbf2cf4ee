import { cacheLayout, freeBytes, sequenceBytes } from '../roofline/model-deployment.ts';
import type { StepModel } from '../roofline/step-model.ts';
import { replicaLimits, type SimulatedEngineLimits } from './engine-limits.ts';

/**
 * Mean and mean square of prompt and response lengths, tokens. The averages depend on nothing else of the
 * distributions.
 */
export interface Moments {
  input: { mean: number; square: number };
  output: { mean: number; square: number };
}

interface FluidState {
  /** Mean number of sequences in the batch. */
  batch: number;
  /** Mean seconds per step, including prompts. */
  stepS: number;
  /** Requests that end per second. */
  rate: number;
  /** Mean seconds to the first token. */
  ttftS: number;
  /** Mean seconds of a request. */
  latencyS: number;
}

/**
 * Which part of a request the engine computes. prefill: the prompt and one token. decode: the response to a prompt that
 * another engine computed.
 */
type Phase = 'both' | 'prefill' | 'decode';

/** The averages of a replica from which bounds are computed. A replica is one engine, or a disaggregated pair. */
export interface FluidLike {
  readonly maxSequences: number;
  readonly batchMax: number;
  readonly isPair: boolean;
  /** The maximum throughput. */
  saturated(): Pick<FluidState, 'rate'>;
  /** The state at `rate` requests/s, assuming that no request waits for a free place in the batch. */
  unqueued(rate: number): Pick<FluidState, 'latencyS'>;
}

/**
 * A replica described by averages instead of events, so that thousands of candidates take no longer than one
 * simulation. The chosen candidates are simulated afterwards.
 */
export class Fluid implements FluidLike {
  readonly #step: StepModel;
  readonly #moments: Moments;
  readonly #context: number;
  readonly #pairs: number;
  readonly #windowPairs: number;
  readonly #phase: Phase;
  /** Maximum number of sequences in the batch by the engine's limit. */
  readonly maxSequences: number;
  readonly isPair = false;
  /** Largest mean batch, by the engine's limit or by the memory. */
  readonly batchMax: number;

  constructor(step: StepModel, limits: SimulatedEngineLimits, asked: Moments, phase: Phase = 'both') {
    this.#step = step;
    const moments = phase === 'prefill' ? { ...asked, output: { mean: 1, square: 1 } } : asked;
    this.#moments = moments;
    this.#phase = phase;
    const { input, output } = moments;
    // A batch holds more long responses than arrivals do, because they stay longer: the mean context is length-biased.
    this.#context = input.mean + output.square / (2 * output.mean);
    this.#pairs = phase === 'decode' ? 0 : input.square / 2;
    this.#windowPairs = Math.min(this.#pairs, input.mean * step.window);
    const { maxSequences } = replicaLimits(limits, step.deployment);
    this.maxSequences = maxSequences;
    // A sequence is admitted when its prompt fits, and then grows into the free blocks. So it wastes only half a block
    // on average.
    const each = sequenceBytes(cacheLayout(step.deployment), this.#context + limits.blockTokens / 2);
    this.batchMax = Math.max(0, Math.min(maxSequences, freeBytes(step.deployment, limits.memoryFraction) / each));
  }

  /**
   * Mean seconds of a step with `batch` sequences. In each step, batch/(mean output) sequences end and as many begin.
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
    const sequences = Math.max(1, Math.round(batch));
    return linear + attention + step.overheadSeconds(sequences) + step.bubbleSeconds(linear + attention, sequences);
  }

  /**
   * The state at maximum throughput. If memory is full, an engine preempts sequences and computes them again. Averages
   * do not show this loss, so the rate is multiplied by `FULL_MEMORY`. If the engine's limit bounds the batch, it is
   * multiplied by `FULL_BATCH`.
   */
  saturated(): FluidState {
    const state = this.#state(this.batchMax, 0);
    return { ...state, rate: state.rate * (this.batchMax < this.maxSequences ? FULL_MEMORY : FULL_BATCH) };
  }

  /**
   * The state at `rate` requests/s, assuming that no request waits for a free place in the batch. Its latency is a
   * lower bound of the simulated one, except for effects that averages hide.
   */
  unqueued(rate: number): FluidState {
    return this.#state(Math.max(this.#batchAt(rate), Math.min(1, rate)), 0);
  }

  /** Mean size of the batch in which `rate` requests end per second. */
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
   * The state at `rate` requests/s, which must be below that of `saturated`. It includes the queue that varying
   * arrivals and service times cause.
   */
  at(rate: number, cv = 1): FluidState {
    const { output } = this.#moments;
    const batch = this.#batchAt(rate);
    const full = this.saturated();
    const rho = Math.min(0.999, rate / full.rate);
    // Sakasegawa's approximation (1977) of the wait in an M/G/c queue; the servers are the places of the batch.
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
    const alone = this.#step.promptSeconds(Math.max(1, Math.round(input.mean)), this.#pairs, this.#windowPairs);
    const ttftS = waitS + stepS / 2 + alone + this.#step.host.request_ms * 1e-3;
    return { batch, stepS, rate: batch / (output.mean * stepS), ttftS, latencyS: ttftS + (output.mean - 1) * stepS };
  }
}

/** A simulated throughput is this share of that by averages, if the memory bounds the batch. */
const FULL_MEMORY = 0.87;
/** A simulated throughput is this share of that by averages, if the engine's limit bounds the batch. */
const FULL_BATCH = 0.97;
