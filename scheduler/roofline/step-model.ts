import { type Calibration, type CalibrationHost, type Efficiency, efficiencyOf } from '../catalogue/calibration.ts';
import { layerCount, windowTokens } from '../catalogue/model.ts';
import { gemmSeconds, sendSeconds } from './kernel-times.ts';
import { LayerTimes } from './layer-times.ts';
import { kvBytesPerToken, type ModelDeployment } from './model-deployment.ts';
import { activationBytes, gemmWork } from './operators.ts';
import { gpusOf } from './parallelism.ts';
import { type MicroBatchTimes, slowestStage, stageShares } from './pipeline-stages.ts';

/** The work of one step of the engine. */
export interface EngineStep {
  /** Number of sequences that get one more token. */
  decodes: number;
  /** Sum of the context lengths of these sequences, tokens. */
  context: number;
  /** The part of `context` that is inside windows. */
  windowContext: number;
  /** New prompt tokens. */
  prefillTokens: number;
  /** (query, key) pairs of the prompts' attention: for n new tokens after c cached ones, n(c+(n+1)/2). */
  prefillPairs: number;
  /** The part of `prefillPairs` that is inside windows. */
  prefillWindowPairs: number;
  /** Number of keys that the prompts' attention reads. */
  prefillKeys: number;
  /** Number of sequences that sample their next token from this step's prefill. */
  prefillEnds: number;
}

/** A step without work, as a template. */
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

/** Start options of an engine that affect the time of its steps. */
export interface EngineMode {
  asyncScheduling: boolean;
}

const SYNCHRONOUS: EngineMode = { asyncScheduling: false };

/**
 * Times are cached up to this many tokens and sequences; larger steps are rare, and computed each time. The caches take
 * 90 KB for each of about a thousand options.
 */
const CACHED_TOKENS = 10_240;
const CACHED_SEQUENCES = 1_024;
/** Bytes of a typical transfer, for which the rate of the link is computed: a prompt of 1,000 tokens of an 8B model. */
const HANDOVER_BYTES = 128e6;

/**
 * Computes the time of a step of one replica. The part that depends only on the number of tokens is computed once for
 * each number.
 */
export class StepModel {
  readonly deployment: ModelDeployment;
  readonly host: CalibrationHost;
  /** Tokens that windowed layers attend to; 0: there are no such layers. */
  readonly window: number;
  /** Seconds of decode attention per token of context, in layers with full attention. */
  readonly secondsPerContextToken: number;
  /** Seconds of decode attention per token of context, in layers with a window. */
  readonly secondsPerWindowToken: number;
  /** Share of the host's time in a step that overlaps with the GPU's. */
  readonly #hidden: number;
  readonly #efficiency: Efficiency;
  readonly #layers: LayerTimes;
  readonly #links: Calibration['links'];
  readonly #linear = new Float64Array(CACHED_TOKENS);
  readonly #sampling = new Float64Array(CACHED_SEQUENCES);
  /** Share of the layers that each pipeline stage holds; [1] without a pipeline. */
  readonly stageShares: readonly number[];
  /** Times of a micro-batch, which has all its tokens in each stage; undefined without a pipeline. */
  readonly #whole: StepModel | undefined;

  /** `engine`: start options of the engine that affect the time of steps. */
  constructor(deployment: ModelDeployment, calibration: Calibration, engine: EngineMode = SYNCHRONOUS) {
    if (deployment.prefill !== undefined) throw new Error('a pair has two engines: make a step model of each');
    this.deployment = deployment;
    this.host = calibration.host;
    this.window = windowTokens(deployment.model);
    // With a pipeline, engines do not prepare the next step while the GPU computes this one.
    this.#hidden = engine.asyncScheduling && (deployment.pp ?? 1) === 1 ? calibration.host.hidden : 0;
    this.#efficiency = efficiencyOf(calibration, deployment.gpu);
    this.#links = calibration.links;
    this.#layers = new LayerTimes(deployment, this.#efficiency, calibration.links);
    this.secondsPerContextToken = this.#layers.contextToken;
    this.secondsPerWindowToken = this.#layers.windowToken;
    const { pp = 1, model } = deployment;
    this.stageShares = stageShares(layerCount(model), pp);
    this.#whole = pp > 1 ? new StepModel({ ...deployment, pp: 1 }, calibration, engine) : undefined;
  }

  /** Seconds of one step. Of a pipeline: of a round, in which each stage processes a share of the step's tokens. */
  seconds(step: EngineStep): number {
    const { decodes, prefillTokens } = step;
    const sequences = decodes + step.prefillEnds;
    const attention = this.#attention(step);
    const seconds = this.#fixed(decodes + prefillTokens, sequences) + attention;
    if (this.#whole === undefined) return seconds;
    return seconds + this.bubbleSeconds(this.linear(decodes + prefillTokens) + attention, sequences);
  }

  #attention(step: EngineStep): number {
    const decode = step.context * this.secondsPerContextToken + step.windowContext * this.secondsPerWindowToken;
    if (step.prefillTokens === 0) return decode;
    const arithmetic = this.pairsSeconds(step.prefillPairs, step.prefillWindowPairs);
    return decode + Math.max(arithmetic, step.prefillKeys * this.#layers.promptKey);
  }

  /**
   * Seconds by which a pipeline's round is longer than the layers, the head and the host's work of one micro-batch: every
   * stage waits for the slowest one, and for the host. `layers`: seconds of the layers of one micro-batch; `sequences`: of the whole round.
   */
  bubbleSeconds(layers: number, sequences: number): number {
    const stages = this.stageShares.length;
    if (stages === 1) return 0;
    const [head, host] = [this.#sample(sequences), this.#host(sequences)];
    const batches = Math.min(stages, Math.max(1, sequences));
    const way = layers + head + stages * host;
    return Math.max(way, batches * (slowestStage(this.stageShares, layers, head) + host)) - layers - head - host;
  }

  /** Seconds until a prompt of `tokens` tokens is computed, if the engine does nothing else. */
  promptSeconds(tokens: number, pairs: number, pairsInWindow: number): number {
    const whole = this.#whole;
    if (whole === undefined) return this.linear(tokens) + this.pairsSeconds(pairs, pairsInWindow);
    return whole.promptSeconds(tokens, pairs, pairsInWindow) + (this.stageShares.length - 1) * this.#hop(tokens);
  }

  /**
   * Seconds of the parts of a step, for one micro-batch of a pipeline. `running`: sequences of all micro-batches,
   * because the scheduler of an engine looks at all of them in each step.
   */
  microBatch(step: EngineStep, running: number): MicroBatchTimes {
    const whole = this.#whole ?? this;
    const tokens = step.decodes + step.prefillTokens;
    const sequences = step.decodes + step.prefillEnds;
    const head = whole.#sample(sequences);
    return {
      host: this.#host(running),
      layers: whole.linear(tokens) + whole.#sequences(sequences) - head + whole.#attention(step),
      head,
      hop: this.#hop(tokens),
    };
  }

  /** Seconds in which a stage sends the activations of `tokens` tokens to the next stage. */
  #hop(tokens: number): number {
    const { gpu, model, tp } = this.deployment;
    return sendSeconds(activationBytes(model.hidden, tokens) / tp, gpusOf(this.deployment), gpu, this.#links);
  }

  /**
   * Seconds of one layer for `tokens` new tokens, decode attention over `context` tokens, and prompt attention over
   * `pairs` (query, key) pairs.
   */
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
   * Seconds of a step that depend on neither tokens nor context: host, sampling, launches of attention, recurrent
   * states.
   */
  overheadSeconds(sequences: number): number {
    return this.#host(sequences) * (1 - this.#hidden) + this.#sequences(sequences);
  }

  /** Seconds of a decode step without the part that grows with context, and without bubbles. */
  decodeBase(sequences: number): number {
    return this.#fixed(sequences, sequences);
  }

  #host(sequences: number): number {
    return (this.host.step_ms + this.host.sequence_ms * sequences) * 1e-3;
  }

  /**
   * Seconds of a step that do not grow with context. The hidden share of the host's time overlaps with the GPU's, so
   * only the longer of the two counts.
   */
  #fixed(tokens: number, sequences: number): number {
    const host = this.#host(sequences);
    const gpu = this.linear(tokens) + this.#sequences(sequences);
    return Math.max(gpu, host * this.#hidden) + host * (1 - this.#hidden);
  }

  #sequences(sequences: number): number {
    return this.#sample(sequences) + this.#layers.launch + sequences * this.#layers.state;
  }

  /** Seconds that the arithmetic would take at the GPU's 16-bit peak, for the energy estimate. */
  peakComputeSeconds(tokens: number): number {
    return (tokens * this.#layers.flopsPerToken) / this.deployment.gpu.bf16;
  }

  /**
   * Bytes/s at which keys and values move from this engine's GPUs to the decode engine's GPUs in the same node. Each
   * GPU sends its part to one receiver.
   */
  handoverRate(decode: ModelDeployment, links: Calibration['links']): number {
    const [from, to] = [gpusOf(this.deployment), gpusOf(decode)];
    return (Math.min(from, to) * HANDOVER_BYTES) / sendSeconds(HANDOVER_BYTES, from + to, this.deployment.gpu, links);
  }

  /** Seconds that keys and values of `tokens` tokens take over a network of `bytesPerSecond`. */
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
