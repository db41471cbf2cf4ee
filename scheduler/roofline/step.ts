import { type Calibration, type Efficiency, efficiencyOf, type Host } from '../catalogue/calibration.ts';
import { type Deployment, kvBytesPerToken } from './deployment.ts';
import {
  allReduceBytes,
  attentionWork,
  ELEMENTWISE_KERNELS,
  elementwiseWork,
  type Gemm,
  gemmWork,
  headGemm,
  layerGemms,
} from './operators.ts';
import { allReduceSeconds, gemmSeconds, peakFlops } from './time.ts';

/** What one step of the engine does. */
export interface Step {
  /** Sequences that get one more token. */
  decodes: number;
  /** Sum of their context lengths, tokens. */
  context: number;
  /** New prompt tokens. */
  prefillTokens: number;
  /** (query, key) pairs of the prompts' attention: n(c+(n+1)/2) each for n new after c cached tokens. */
  prefillPairs: number;
  /** Keys that the prompts' attention reads. */
  prefillKeys: number;
  /** Sequences whose next token is sampled from this step's prefill. */
  prefillEnds: number;
}

/** How an engine is started, as far as its steps differ by it. */
export interface EngineMode {
  asyncScheduling: boolean;
}

const SYNCHRONOUS: EngineMode = { asyncScheduling: false };

/** Times beyond so many tokens or sequences are computed each time: a step hardly ever has more. 90 KB for each of some thousand options. */
const CACHED_TOKENS = 10_240;
const CACHED_SEQUENCES = 1_024;

/** The time of a step of one replica. What depends on the number of tokens alone is computed once per number. */
export class StepModel {
  readonly deployment: Deployment;
  readonly host: Host;
  /** Share of the host's time in a step that passes beside the GPU's. */
  readonly #hidden: number;
  readonly #efficiency: Efficiency;
  readonly #links: Calibration['links'];
  readonly #gemms: Gemm[];
  readonly #head: Gemm;
  readonly #linear = new Float64Array(CACHED_TOKENS);
  readonly #sampling = new Float64Array(CACHED_SEQUENCES);
  /** Seconds of decode attention per token of context, all layers. */
  readonly secondsPerContextToken: number;
  readonly #secondsPerPair: number;
  readonly #secondsPerPrefillKey: number;
  readonly #attentionLaunch: number;
  readonly #flopsPerToken: number;

  /** `engine`: as it is started. */
  constructor(deployment: Deployment, calibration: Calibration, engine: EngineMode = SYNCHRONOUS) {
    const { model, gpu, tp, kv, weights } = deployment;
    this.deployment = deployment;
    this.host = calibration.host;
    this.#hidden = engine.asyncScheduling ? calibration.host.hidden : 0;
    const efficiency = efficiencyOf(calibration, gpu);
    this.#efficiency = efficiency;
    this.#links = calibration.links;
    this.#gemms = layerGemms(model, tp);
    this.#head = headGemm(model, tp);
    const one = attentionWork(model, tp, 1, 1, kv);
    this.secondsPerContextToken = (model.layers * one.bytes) / (gpu.bandwidth * efficiency.attention_memory);
    this.#secondsPerPair =
      (model.layers * one.flops) / (gpu.bf16 * efficiency.attention_compute * efficiency.sustained);
    this.#secondsPerPrefillKey = (model.layers * one.bytes) / (gpu.bandwidth * efficiency.attention_memory);
    this.#attentionLaunch = model.layers * efficiency.attention_launch_us * 1e-6;
    const peakScale = gpu.bf16 / peakFlops(gpu, weights);
    this.#flopsPerToken =
      model.layers * peakScale * this.#gemms.reduce((sum, gemm) => sum + gemmWork(gemm, 1, weights).flops, 0);
  }

  /** Seconds. */
  seconds(step: Step): number {
    const { decodes, prefillTokens } = step;
    let seconds = this.#fixed(decodes + prefillTokens, decodes + step.prefillEnds);
    seconds += step.context * this.secondsPerContextToken;
    if (prefillTokens > 0) {
      seconds += Math.max(step.prefillPairs * this.#secondsPerPair, step.prefillKeys * this.#secondsPerPrefillKey);
    }
    return seconds;
  }

  /** Seconds of one layer alone: `tokens` new, decode attention over `context`, prompt attention over `pairs`. */
  layerSeconds(tokens: number, context: number, pairs: number): number {
    const all =
      this.linear(tokens) +
      this.#attentionLaunch +
      context * this.secondsPerContextToken +
      pairs * this.#secondsPerPair;
    return all / this.deployment.model.layers;
  }

  /** Seconds of the prompts' attention over so many (query, key) pairs. */
  pairsSeconds(pairs: number): number {
    return pairs * this.#secondsPerPair;
  }

  /** What a step costs beside its tokens and its context: host, sampling, launches of attention. */
  overheadSeconds(sequences: number): number {
    return this.#host(sequences) * (1 - this.#hidden) + this.#sample(sequences) + this.#attentionLaunch;
  }

  /** Seconds of a pure decode step without the part that grows with context. */
  decodeBase(sequences: number): number {
    return this.#fixed(sequences, sequences);
  }

  #host(sequences: number): number {
    return (this.host.step_ms + this.host.sequence_ms * sequences) * 1e-3;
  }

  /** What of a step does not grow with context. The host's hidden share counts only as far as it outlasts the GPU's part of that. */
  #fixed(tokens: number, sequences: number): number {
    const host = this.#host(sequences);
    const gpu = this.linear(tokens) + this.#sample(sequences) + this.#attentionLaunch;
    return Math.max(gpu, host * this.#hidden) + host * (1 - this.#hidden);
  }

  /** Share of the step in which the GPU's arithmetic (as 16-bit) would be busy at its peak: for the energy estimate. */
  peakComputeSeconds(tokens: number): number {
    return (tokens * this.#flopsPerToken) / this.deployment.gpu.bf16;
  }

  /** Seconds in which keys and values of one token cross a network of `bytesPerSecond`. */
  transferSeconds(tokens: number, bytesPerSecond: number): number {
    return (tokens * kvBytesPerToken(this.deployment)) / bytesPerSecond;
  }

  /** Seconds of all layers' products, elementwise kernels and all-reduces for `tokens` tokens. */
  linear(tokens: number): number {
    if (tokens >= CACHED_TOKENS) return this.#linearSeconds(tokens);
    const known = this.#linear[tokens] ?? 0;
    if (known > 0) return known;
    const seconds = this.#linearSeconds(tokens);
    this.#linear[tokens] = seconds;
    return seconds;
  }

  #linearSeconds(tokens: number): number {
    const { model, gpu, tp, weights } = this.deployment;
    const efficiency = this.#efficiency;
    let layer = 0;
    for (const gemm of this.#gemms) layer += gemmSeconds(gemmWork(gemm, tokens, weights), gpu, efficiency, weights);
    const elementwise = elementwiseWork(model, tp, tokens);
    layer += elementwise.bytes / (gpu.bandwidth * efficiency.elementwise_memory);
    layer += ELEMENTWISE_KERNELS * efficiency.elementwise_launch_us * 1e-6;
    layer += 2 * allReduceSeconds(allReduceBytes(model, tokens), tp, gpu, this.#links);
    return model.layers * layer;
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

  /** The head stays in 16 bit in quantised checkpoints. */
  #sampleSeconds(sequences: number): number {
    return gemmSeconds(gemmWork(this.#head, sequences, 'bf16'), this.deployment.gpu, this.#efficiency, 'bf16');
  }
}
