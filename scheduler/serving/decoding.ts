import { Heap } from './heap.ts';
import type { KvBlocks } from './kv-blocks.ts';
import type { Sequence } from './sequence.ts';

/**
 * The decoding batch of one replica. All in it gain a token per step, so the batch is a size, a context and the steps at which its
 * sequences end. Sequences bring their own blocks and get those of the steps here; who ends them gives the blocks back.
 */
export class Decoding {
  readonly #blocks: KvBlocks;
  readonly #finishes = new Heap<Sequence>();
  /** Sequences in it. */
  size = 0;
  /** Tokens whose keys and values they hold. */
  context = 0;
  /** Steps that it made. */
  #step = 0;

  constructor(blocks: KvBlocks) {
    this.#blocks = blocks;
  }

  /** It holds `base` tokens, and `remaining` are to come. */
  join(sequence: Sequence): void {
    sequence.since = this.#step;
    sequence.phase = this.#blocks.join(sequence.base, this.#step);
    this.size++;
    this.context += sequence.base;
    this.#finishes.push(this.#step + sequence.remaining, sequence.epoch, sequence);
  }

  /** Returns the tokens it held. */
  leave(sequence: Sequence): number {
    const held = sequence.base + (this.#step - sequence.since);
    this.#blocks.leave(sequence.phase);
    this.size--;
    this.context -= held;
    return held;
  }

  /** The next step needs more blocks than there are. */
  get cramped(): boolean {
    return this.#blocks.needed(1, this.#step) > this.#blocks.free;
  }

  /** Until the first one has all its tokens, or the blocks run out; at least one. */
  stepsToChange(): number {
    const toFinish = Math.max(1, this.#nextFinish() - this.#step);
    return Math.max(1, this.#blocks.stepsInRoom(toFinish, this.#step));
  }

  #nextFinish(): number {
    for (;;) {
      const top = this.#finishes.peek();
      if (top === undefined) return this.#step + 1;
      if (top.epoch === top.item.epoch && top.item.running) return top.key;
      this.#finishes.pop();
    }
  }

  /** All gain `steps` tokens. */
  advance(steps: number): void {
    this.#blocks.free -= this.#blocks.needed(steps, this.#step);
    this.context += steps * this.size;
    this.#step += steps;
  }

  /** One that has all its tokens and is still in, if there is any. */
  takeFinished(): Sequence | undefined {
    for (;;) {
      const top = this.#finishes.peek();
      if (top === undefined || top.key > this.#step) return undefined;
      this.#finishes.pop();
      if (top.epoch === top.item.epoch && top.item.running) return top.item;
    }
  }
}
