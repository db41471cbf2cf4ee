import { Heap } from './heap.ts';
import { BlockPhases, type KvBlocks } from './kv-blocks.ts';
import type { Sequence } from './sequence.ts';

/**
 * A decoding batch: of a replica, or one micro-batch of a pipeline. All its sequences gain a token per step, so the batch is described by its size,
 * its context and the steps at which its sequences end. A sequence that joins has blocks for its tokens so far; the
 * batch takes the blocks for later tokens. When a sequence ends, the caller frees its blocks.
 */
export class DecodeBatch {
  readonly #blocks: KvBlocks;
  readonly #phases: BlockPhases;
  readonly #finishes = new Heap<Sequence>();
  /** Sequences in the batch. */
  size = 0;
  /** Sum over the sequences: tokens whose keys and values are in memory. */
  context = 0;
  /** The part of `context` that is inside a window of `window` tokens. */
  windowContext = 0;
  /** Number of sequences that are shorter than the window: each adds one token to `windowContext` in every step. */
  widening = 0;
  readonly #window: number;
  readonly #fills = new Heap<Sequence>();
  /** Number of steps so far. */
  #step = 0;

  /** `window`: tokens that windowed layers attend to; 0: there are no such layers. */
  constructor(blocks: KvBlocks, window = 0) {
    this.#blocks = blocks;
    this.#phases = new BlockPhases(blocks);
    this.#window = window;
  }

  /** Adds a sequence that holds `base` tokens and will get `remaining` more. */
  join(sequence: Sequence): void {
    sequence.since = this.#step;
    sequence.phase = this.#phases.join(sequence.base, this.#step);
    this.size++;
    this.context += sequence.base;
    this.windowContext += Math.min(sequence.base, this.#window);
    if (sequence.base < this.#window) {
      this.widening++;
      this.#fills.push(this.#step + this.#window - sequence.base, sequence.epoch, sequence);
    }
    this.#finishes.push(this.#step + sequence.remaining, sequence.epoch, sequence);
  }

  /** Number of tokens in the sequence's KV cache. */
  held(sequence: Sequence): number {
    return sequence.base + (this.#step - sequence.since);
  }

  /** Removes a sequence and returns the number of tokens that it held. */
  leave(sequence: Sequence): number {
    const held = this.held(sequence);
    this.#phases.leave(sequence.phase);
    this.size--;
    this.context -= held;
    this.windowContext -= Math.min(held, this.#window);
    if (held < this.#window) this.widening--;
    return held;
  }

  /** True if the next step needs more blocks than are free. */
  get cramped(): boolean {
    return this.#phases.needed(1, this.#step) > this.#blocks.free;
  }

  /**
   * Number of steps until a sequence has all its tokens or fills its window, or until the blocks are used up; at least
   * one.
   */
  stepsToChange(): number {
    const next = Math.min(
      this.#next(this.#finishes) ?? this.#step + 1,
      this.#next(this.#fills) ?? Number.POSITIVE_INFINITY,
    );
    return Math.max(1, this.#phases.stepsInRoom(Math.max(1, next - this.#step), this.#step));
  }

  /** Number of steps until a sequence has all its tokens or fills its window; 0: one has all its tokens. */
  stepsToEnd(): number {
    const next = Math.min(
      this.#next(this.#finishes) ?? this.#step,
      this.#next(this.#fills) ?? Number.POSITIVE_INFINITY,
    );
    return Math.max(0, next - this.#step);
  }

  /** Number of blocks that the next `steps` steps take. */
  blocksFor(steps: number): number {
    return this.#phases.needed(steps, this.#step);
  }

  /** Step of the first entry in a heap for a sequence that is still in the batch. */
  #next(heap: Heap<Sequence>): number | undefined {
    for (;;) {
      const top = heap.peek();
      if (top === undefined) return undefined;
      if (top.epoch === top.item.epoch && top.item.running) return top.key;
      heap.pop();
    }
  }

  /** Runs `steps` steps: each sequence gains as many tokens. */
  advance(steps: number): void {
    this.#blocks.free -= this.#phases.needed(steps, this.#step);
    this.context += steps * this.size;
    this.windowContext += steps * this.widening;
    this.#step += steps;
    for (let key = this.#next(this.#fills); key !== undefined && key <= this.#step; key = this.#next(this.#fills)) {
      this.#fills.pop();
      this.widening--;
    }
  }

  /** Returns a sequence of the batch that has all its tokens; undefined if there is none. */
  takeFinished(): Sequence | undefined {
    for (;;) {
      const top = this.#finishes.peek();
      if (top === undefined || top.key > this.#step) return undefined;
      this.#finishes.pop();
      if (top.epoch === top.item.epoch && top.item.running) return top.item;
    }
  }
}

/**
 * Number of (query, key) pairs inside a window for `chunk` new tokens after `before` earlier ones: the sum of
 * min(before + j, window) over j = 1..chunk.
 */
export function pairsInWindow(before: number, chunk: number, window: number): number {
  const growing = Math.max(0, Math.min(chunk, window - before));
  return growing * (before + (growing + 1) / 2) + (chunk - growing) * window;
}
