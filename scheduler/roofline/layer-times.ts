import type { Calibration, Efficiency } from '../catalogue/calibration.ts';
import type { Layer } from '../catalogue/layers.ts';
import { expertsOf } from '../catalogue/model.ts';
import { allReduceSeconds, allToAllSeconds, gemmSeconds, peakFlops, sendSeconds } from './kernel-times.ts';
import type { ModelDeployment } from './model-deployment.ts';
import {
  activationBytes,
  decodeAttentionWork,
  elementwiseBytes,
  elementwiseKernels,
  type Gemm,
  gemmWork,
  headGemm,
  layerGemms,
  prefillPairFlops,
  seesWindow,
  stateBytesPerStep,
} from './operators.ts';
import { gpusOf, spreadOf } from './parallelism.ts';

/**
 * Seconds that all layers of one replica take, by their parts. A pipeline of p stages processes p batches concurrently.
 * Each batch has a p-th of the tokens. So a round, in which every sequence gains a token, takes as long as one such
 * batch takes to pass all stages.
 */
export class LayerTimes {
  readonly head: Gemm;
  /** Seconds per token of context in a decode step, for layers with full attention. */
  contextToken = 0;
  /** Seconds per token of context in a decode step, for layers with a window. */
  windowToken = 0;
  /** Seconds per (query, key) pair of a prompt, for layers with full attention. */
  pair = 0;
  /** Seconds per (query, key) pair of a prompt, for layers with a window. */
  windowPair = 0;
  /** Seconds per key that a prompt's attention reads. */
  promptKey = 0;
  /** Seconds per sequence to read and write recurrent states. */
  state = 0;
  /** Seconds that the kernel launches of attention take in one step. */
  launch = 0;
  /** Operations per token; those in other precisions are converted to the 16-bit operations that take as long. */
  flopsPerToken = 0;
  readonly #deployment: ModelDeployment;
  readonly #efficiency: Efficiency;
  readonly #links: Calibration['links'];
  readonly #kinds: { layer: Layer; gemms: Gemm[] }[];
  readonly #routed: boolean;

  constructor(deployment: ModelDeployment, efficiency: Efficiency, links: Calibration['links']) {
    this.#deployment = deployment;
    this.#efficiency = efficiency;
    this.#links = links;
    this.#routed = expertsOf(deployment.model).experts > 1;
    this.#kinds = deployment.model.layers.map((layer) => ({ layer, gemms: layerGemms(layer, deployment) }));
    this.head = headGemm(deployment);
    for (const { layer, gemms } of this.#kinds) this.#add(layer, gemms);
  }

  #add(layer: Layer, gemms: readonly Gemm[]): void {
    const { gpu, kv } = this.#deployment;
    const efficiency = this.#efficiency;
    const flops = gpu.bf16 * efficiency.attention_compute * efficiency.sustained;
    const bytes = gpu.bandwidth * efficiency.attention_memory;
    for (const mixer of layer.mixers) {
      const decode = decodeAttentionWork(mixer, this.#deployment, kv);
      const perToken = layer.count * Math.max(decode.bytes / bytes, decode.flops / flops);
      const perPair = (layer.count * prefillPairFlops(mixer, this.#deployment)) / flops;
      if (seesWindow(mixer)) {
        this.windowToken += perToken;
        this.windowPair += perPair;
      } else {
        this.contextToken += perToken;
        this.pair += perPair;
      }
      this.promptKey += (layer.count * decode.bytes) / bytes;
      this.state += (layer.count * stateBytesPerStep(mixer, this.#deployment)) / bytes;
      this.launch += layer.count * efficiency.attention_launch_us * 1e-6;
    }
    for (const gemm of gemms) {
      const scale = gpu.bf16 / peakFlops(gpu, gemm.weights);
      this.flopsPerToken += 2 * layer.count * gemm.active * gemm.share * gemm.inner * gemm.outer * scale;
    }
  }

  /** Seconds of products, elementwise kernels and exchanges for `tokens` tokens. */
  seconds(tokens: number): number {
    const { gpu, model } = this.#deployment;
    const efficiency = this.#efficiency;
    const exchange = this.#exchanges(tokens);
    let all = this.#hops(tokens);
    for (const { layer, gemms } of this.#kinds) {
      let one = 0;
      for (const gemm of gemms) {
        const routed = gemm.matrices !== 1 || gemm.active !== 1;
        one += gemmSeconds(gemmWork(gemm, tokens), gpu, efficiency, gemm.weights, routed);
      }
      one +=
        elementwiseBytes(layer, model.hidden, this.#deployment, tokens) /
        (gpu.bandwidth * efficiency.elementwise_memory);
      one += elementwiseKernels(layer) * efficiency.elementwise_launch_us * 1e-6;
      if (layer.mixers.length > 0) one += exchange.mixer;
      if (layer.feedForward !== undefined) one += layer.feedForward.experts > 1 ? exchange.routed : exchange.dense;
      all += layer.count * one;
    }
    return all;
  }

  /** Seconds of the exchanges after a mixer, a dense block and an expert block. */
  #exchanges(tokens: number): { mixer: number; dense: number; routed: number } {
    const { gpu, model } = this.#deployment;
    const { tp, pp, dp, sp } = spreadOf(this.#deployment);
    const here = tokens / (pp * dp * sp);
    const reduce = allReduceSeconds(activationBytes(model.hidden, here), tp, gpu, this.#links);
    // Sequence parallelism (Ulysses) sends queries, keys and values to the GPUs of their heads, and outputs back.
    const heads = sp > 1 ? 2 * allToAllSeconds(2 * activationBytes(model.hidden, here), tp * sp, gpu, this.#links) : 0;
    const mixer = reduce + heads;
    if (dp === 1 || !this.#routed) return { mixer, dense: reduce, routed: reduce };
    // Every token is sent to the GPUs of its experts, and the results return.
    const most = Math.max(...model.layers.map(({ feedForward }) => feedForward?.active ?? 1));
    const fanOut = Math.min(most, tp * dp - 1);
    const routed = 2 * allToAllSeconds((activationBytes(model.hidden, here) * fanOut) / tp, tp * dp, gpu, this.#links);
    return { mixer, dense: reduce, routed };
  }

  /** Seconds for all stages to send their activations to the next stage. */
  #hops(tokens: number): number {
    const { gpu, model } = this.#deployment;
    const { pp, dp, sp, tp } = spreadOf(this.#deployment);
    if (pp === 1) return 0;
    const bytes = activationBytes(model.hidden, tokens / (pp * dp * sp)) / tp;
    return (pp - 1) * sendSeconds(bytes, gpusOf(this.#deployment), gpu, this.#links);
  }
}
