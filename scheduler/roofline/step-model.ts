import { type Calibration, type CalibrationHost, type Efficiency, efficiencyOf } from '../catalogue/calibration.ts';
import { layerCount, windowTokens } from '../catalogue/model.ts';
import { kvBytesPerToken, type ModelDeployment } from './deployment.ts';
import { gemmSeconds, sendSeconds } from './kernel-times.ts';
import { LayerTimes } from './layer-times.ts';
import { gemmWork } from './operators.ts';
import { gpusOf } from './parallelism.ts';

/** The work of one step of the engine. */
export interface EngineStep {
  /** Sequences that get one more token. */
  decodes: number;
  /** Sum of their context lengths, tokens; and the part of it inside windows. */
  context: number;
  windowContext: number;
  /** New prompt tokens. */
  prefillTokens: number;
  /**
   * (query, key) pairs of the prompts' attention: n(c+(n+1)/2) each for n new after c cached tokens; and the pairs
   * inside a window.
   */
  prefillPairs: number;
  prefillWindowPairs: number;
  /** Keys that the prompts' attention reads. */
  prefillKeys: number;
  /** Sequences that sample their next token from this step's prefill. */
  prefillEnds: number;
}

/** An empty step, as a template. */
export const IDLE_STEP: EngineStep = {
  decodes: 0,
  context: 0,
  windowContext: 0,
  prefillTokens: 0,
  prefillPairs: 0,
  prefillWindowPairs: 0,
  prefillKeys: 0,
  prefillEnds: 0,
};

/** Start options of an engine that affect its steps. */
export interface EngineMode {
  asyncScheduling: boolean;
}

const SYNCHRONOUS: EngineMode = { asyncScheduling: false };

/**
 * Bounds of the cached times; steps with more tokens or sequences are rare and computed each time. 90 KB for each of
 * some thousand options.
 */
const CACHED_TOKENS = 10_240;
const CACHED_SEQUENCES = 1_024;
/** A prompt of 1,000 tokens of an 8B model: the link's rate is taken at this size. */
const HANDOVER_BYTES = 128e6;

/**
 * The time of a step of one replica. The part that depends only on the number of tokens is computed once per number.
 */
export class StepModel {
  readonly deployment: ModelDeployment;
  readonly host: CalibrationHost;
  /** Tokens that windowed layers attend to; 0: there are no such layers. */
  readonly window: number;
  /** Seconds of decode attention per token of context, in layers with full attention and in layers with a window. */
  readonly secondsPerContextToken: number;
  readonly secondsPerWindowToken: number;
  /** Share of the host's time in a step that overlaps with the GPU's. */
  readonly #hidden: number;
  readonly #efficiency: Efficiency;
  readonly #layers: LayerTimes;
  readonly #linear = new Float64Array(CACHED_TOKENS);
  readonly #sampling = new Float64Array(CACHED_SEQUENCES);

  /** `engine`: its start options. */
  constructor(deployment: ModelDeployment, calibration: Calibration, engine: EngineMode = SYNCHRONOUS) {
    if (deployment.prefill !== undefined) throw new Error('a pair has two engines, and each its own steps');
    this.deployment = deployment;
    this.host = calibration.host;
    this.window = windowTokens(deployment.model);
    this.#hidden = engine.asyncScheduling ? calibration.host.hidden : 0;
    this.#efficiency = efficiencyOf(calibration, deployment.gpu);
    this.#layers = new LayerTimes(deployment, this.#efficiency, calibration.links);
    this.secondsPerContextToken = this.#layers.contextToken;
    this.secondsPerWindowToken = this.#layers.windowToken;
  }

  /** Seconds. */
  seconds(step: EngineStep): number {
    const { decodes, prefillTokens } = step;
    let seconds = this.#fixed(decodes + prefillTokens, decodes + step.prefillEnds);
    seconds += step.context * this.secondsPerContextToken + step.windowContext * this.secondsPerWindowToken;
    if (prefillTokens > 0) {
      const arithmetic = this.pairsSeconds(step.prefillPairs, step.prefillWindowPairs);
      seconds += Math.max(arithmetic, step.prefillKeys * this.#layers.promptKey);
    }
    return seconds;
  }

  /** Seconds of one layer: `tokens` new, decode attention over `context`, prompt attention over `pairs`. */
  layerSeconds(tokens: number, context: number, pairs: number): number {
    const all =
      this.linear(tokens) +
      this.#layers.launch +
      context * this.secondsPerContextToken +
      this.pairsSeconds(pairs, pairs);
    return all / layerCount(this.deployment.model);
  }

  /** Seconds of the prompts' attention over `pairs` (query, key) pairs, of which `inWindow` are inside a window. */
  pairsSeconds(pairs: number, inWindow: number): number {
    return pairs * this.#layers.pair + inWindow * this.#layers.windowPair;
  }

  /**
   * Cost of a step that depends on neither tokens nor context: host, sampling, launches of attention, recurrent states.
   */
  overheadSeconds(sequences: number): number {
    return this.#host(sequences) * (1 - this.#hidden) + this.#sequences(sequences);
  }

  /** Seconds of a decode step without the part that grows with context. */
  decodeBase(sequences: number): number {
    return this.#fixed(sequences, sequences);
  }

  #host(sequences: number): number {
    return (this.host.step_ms + this.host.sequence_ms * sequences) * 1e-3;
  }

  /**
   * The part of a step that does not grow with context. The host's hidden share counts only as far as it outlasts the
   * GPU's part.
   */
  #fixed(tokens: number, sequences: number): number {
    const host = this.#host(sequences);
    const gpu = this.linear(tokens) + this.#sequences(sequences);
    return Math.max(gpu, host * this.#hidden) + host * (1 - this.#hidden);
  }

  #sequences(sequences: number): number {
    return this.#sample(sequences) + this.#layers.launch + sequences * this.#layers.state;
  }

  /** Seconds in which the GPU's 16-bit arithmetic would be busy at its peak, for the energy estimate. */
  peakComputeSeconds(tokens: number): number {
    return (tokens * this.#layers.flopsPerToken) / this.deployment.gpu.bf16;
  }

  /**
   * Bytes/s at which keys and values move from this engine's GPUs to other GPUs of its node: each sends its part to one
   * receiver.
   */
  handoverRate(decode: ModelDeployment, links: Calibration['links']): number {
    const [from, to] = [gpusOf(this.deployment), gpusOf(decode)];
    return (Math.min(from, to) * HANDOVER_BYTES) / sendSeconds(HANDOVER_BYTES, from + to, this.deployment.gpu, links);
  }

  /** Seconds in which keys and values of `tokens` tokens cross a network of `bytesPerSecond`. */
  transferSeconds(tokens: number, bytesPerSecond: number): number {
    return (tokens * kvBytesPerToken(this.deployment)) / bytesPerSecond;
  }

  /** Seconds of all layers' products, elementwise kernels and exchanges for `tokens` tokens. */
  linear(tokens: number): number {
    if (tokens >= CACHED_TOKENS) return this.#layers.seconds(tokens);
    const known = this.#linear[tokens] ?? 0;
    if (known > 0) return known;
    const seconds = this.#layers.seconds(tokens);
    this.#linear[tokens] = seconds;
    return seconds;
  }

  #sample(sequences: number): number {
    if (sequences === 0) return 0;
    if (sequences >= CACHED_SEQUENCES) return this.#sampleSeconds(sequences);
    const known = this.#sampling[sequences] ?? 0;
    if (known > 0) return known;
    const seconds = this.#sampleSeconds(sequences);
    this.#sampling[sequences] = seconds;
    return seconds;
  }

  #sampleSeconds(sequences: number): number {
    return gemmSeconds(gemmWork(this.#layers.head, sequences), this.deployment.gpu, this.#efficiency, 'bf16');
  }
}
