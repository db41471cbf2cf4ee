import { type EngineStep, IDLE_STEP } from '../roofline/step-model.ts';
import { DecodeBatch } from './decode-batch.ts';
import type { KvBlocks } from './kv-blocks.ts';
import type { Sequence } from './sequence.ts';

/**
 * The sequences that make their steps together. An engine without a pipeline has one micro-batch; a pipeline of p stages
 * has p, since a sequence needs its last token before its next step. A sequence stays in its micro-batch.
 */
export class MicroBatch {
  readonly index: number;
  readonly decoding: DecodeBatch;
  /** Sequences with prompts that end with the step under way. */
  ended: Sequence[] = [];
  /** True while a step is under way, until `readyAt`. */
  stepping = false;
  /** Time at which the tokens of its last step are known, seconds. */
  readyAt = 0;

  constructor(index: number, blocks: KvBlocks, window: number) {
    this.index = index;
    this.decoding = new DecodeBatch(blocks, window);
  }

  /** Sequences that decode, or will when the step under way ends. */
  get size(): number {
    return this.decoding.size + this.ended.length;
  }

  /** A step in which each sequence gets a token, `ahead` steps from now. */
  decodeStep(ahead = 0): EngineStep {
    const { size, context, windowContext, widening } = this.decoding;
    const steps = ahead + 1;
    return {
      ...IDLE_STEP,
      decodes: size,
      context: context + steps * size,
      windowContext: windowContext + steps * widening,
    };
  }
}
