import { cacheLayout, freeBytes } from '../roofline/model-deployment.ts';
import { type EngineStep, IDLE_STEP, type StepModel } from '../roofline/step-model.ts';
import { pairsInWindow } from './decode-batch.ts';
import { EngineCounters } from './engine-counters.ts';
import { replicaLimits, type SimulatedEngineLimits } from './engine-limits.ts';
import { KvBlocks } from './kv-blocks.ts';
import { MicroBatch } from './micro-batch.ts';
import { ReplicaMemory } from './replica-memory.ts';
import { Queue } from './replica-queue.ts';
import type { Sequence } from './sequence.ts';

/**
 * Called once for each request that ended. Times are in seconds. `firstToken` is undefined if the request was refused
 * because it can never fit.
 */
export type OnFinished = (request: number, firstToken: number | undefined, end: number) => void;

/** A request that a replica holds and that can continue on another replica. */
export interface HeldRequest {
  request: number;
  /** Tokens of its prompt, and of its response so far. */
  tokens: number;
  /** True if keys and values of all these tokens are in memory and can be moved. False: they must be computed again. */
  computed: boolean;
  /** Number of response tokens that are still to come. */
  remaining: number;
  /** Time of its first token; undefined: there is none yet. */
  firstToken: number | undefined;
}

/**
 * The scheduler of an engine: which sequences a step includes, and what memory they take. An engine with a pipeline has a
 * micro-batch for each stage, as vLLM has. When the tokens of one are known, it takes all waiting prompts that
 * fit, and passes the stages again.
 */
export class EngineScheduler {
  readonly counters = new EngineCounters();
  readonly batches: readonly MicroBatch[];
  readonly limits: SimulatedEngineLimits;
  readonly blocks: KvBlocks;
  readonly queue: Queue;
  readonly #model: StepModel;
  readonly #finished: OnFinished;
  readonly #memory: ReplicaMemory;
  /** A sequence with a partly computed prompt. */
  #partial: Sequence | undefined;
  /**
   * Sequences in order of admission, because the newest is preempted first. Ended sequences are removed when they are
   * the newest.
   */
  #admitted: Sequence[] = [];

  constructor(model: StepModel, limits: SimulatedEngineLimits, finished: OnFinished) {
    this.#model = model;
    this.limits = replicaLimits(limits, model.deployment);
    this.#finished = finished;
    this.queue = new Queue(limits.prefixHit);
    const { deployment } = model;
    this.blocks = new KvBlocks(
      freeBytes(deployment, limits.memoryFraction),
      limits.blockTokens,
      cacheLayout(deployment),
    );
    this.batches = model.stageShares.map((_, i) => new MicroBatch(i, this.blocks, model.window));
    this.#memory = new ReplicaMemory(this.blocks, limits.prefixBlockTokens);
  }

  /** Number of requests that it holds, running or waiting. */
  get load(): number {
    return this.running + this.queue.all + (this.#partial ? 1 : 0);
  }

  /** Number of sequences that decode, or have their prompt in a step under way. */
  get running(): number {
    let running = 0;
    for (const batch of this.batches) running += batch.size;
    return running;
  }

  /** True if a prompt is computed in part, or the first request of the queue can begin in the next step. */
  get hasPrompts(): boolean {
    return this.#partial !== undefined || this.admissible();
  }

  /** True if no request runs, and none has arrived. */
  get idle(): boolean {
    return this.running === 0 && this.#partial === undefined && this.queue.waiting === 0;
  }

  /** True if requests wait although none runs: the first one can never fit. */
  get blocked(): boolean {
    return this.running === 0 && this.queue.waiting > 0 && !this.hasPrompts;
  }

  /** Tokens and remaining tokens of the sequences that decode now. */
  decoding(): { tokens: number; remaining: number }[] {
    return this.#admitted.flatMap((one) => {
      if (!one.running || one === this.#partial || this.#batchOf(one).ended.includes(one)) return [];
      const tokens = this.#batchOf(one).decoding.held(one);
      return [{ tokens, remaining: one.remaining - (tokens - one.base) }];
    });
  }

  #batchOf({ batch }: Sequence): MicroBatch {
    const found = this.batches[batch];
    if (found === undefined) throw new Error('a sequence is in no micro-batch');
    return found;
  }

  /** See `SimulatedEngine.push`. */
  push(
    request: number,
    arrival: number,
    input: number,
    output: number,
    stored = false,
    hashes?: readonly number[],
  ): void {
    const { context } = this.#model.deployment.model;
    if (context > 0 && input >= context) {
      this.counters.refused++;
      this.#finished(request, undefined, arrival);
      return;
    }
    // A hash represents a full block, so hashes of a partial block are left out.
    const full = hashes?.slice(0, Math.floor(input / this.limits.prefixBlockTokens));
    const within = context > 0 ? Math.min(output, context - input) : output;
    this.queue.push({
      request,
      arrival,
      input,
      output: within,
      stored,
      ...(full === undefined ? {} : { hashes: full }),
    });
  }

  /**
   * Removes and returns up to `most` requests that another replica shall serve: first waiting requests and then running
   * requests, in each case the newest first. A partly computed prompt is lost.
   */
  takeRequests(most = Number.POSITIVE_INFINITY): HeldRequest[] {
    this.#settle();
    const held: HeldRequest[] = [];
    while (held.length < most) {
      const waiting = this.queue.takeNewest();
      if (waiting === undefined) break;
      held.push(waitingHeld(waiting));
    }
    while (held.length < most) {
      const newest = this.#admitted.pop();
      if (newest === undefined) break;
      if (!newest.running) continue;
      const left = this.#runningHeld(newest);
      if (left.computed) this.#batchOf(newest).decoding.leave(newest);
      else this.#partial = undefined;
      this.#memory.giveBack(newest, left.tokens);
      newest.running = false;
      newest.epoch++;
      held.push(left);
    }
    return held;
  }

  /** Returns all requests in the form of `takeRequests`, without removing them. */
  held(): HeldRequest[] {
    this.#settle();
    const running = this.#admitted.filter((one) => one.running);
    return [...this.queue.sequences().map(waitingHeld), ...running.map((one) => this.#runningHeld(one))];
  }

  #runningHeld(sequence: Sequence): HeldRequest {
    if (sequence === this.#partial) return { ...waitingHeld(sequence), computed: false };
    const tokens = this.#batchOf(sequence).decoding.held(sequence);
    const remaining = sequence.remaining - (tokens - sequence.base);
    return { ...waitingHeld(sequence), tokens, computed: true, remaining };
  }

  /** True if the first request of the queue can begin in the next step. */
  admissible(): boolean {
    const head = this.queue.head;
    return head !== undefined && this.running < this.limits.maxSequences && this.#memory.fits(head);
  }

  /** Refuses the first request of the queue. It does not fit although no other request runs, so it can never fit. */
  refuse(now: number): void {
    const head = this.queue.head;
    if (head === undefined) return;
    this.queue.takeHead();
    this.counters.refused++;
    this.#finished(head.request, undefined, now);
  }

  /**
   * Adds to the decoding sequences of a micro-batch all prompts that wait and fit. `decodes`: false if the step
   * shall contain only prompts.
   */
  nextStep(batch: MicroBatch, decodes: boolean, now: number): EngineStep {
    const { tokenBudget, chunkedPrefill, maxSequences } = this.limits;
    if (decodes && batch.decoding.size > 0) this.makeRoom(batch, now);
    const work: EngineStep = decodes && batch.decoding.size > 0 ? batch.decodeStep() : { ...IDLE_STEP };
    const budget = () => tokenBudget - work.decodes - work.prefillTokens;
    const partial = this.#partial;
    if (partial) {
      this.#partial = undefined;
      this.#take(work, partial, Math.min(partial.prompt - partial.prefilled, Math.max(1, budget())), batch);
    }
    while (this.#partial === undefined && this.running < maxSequences) {
      const head = this.queue.head;
      if (head === undefined || !this.#memory.fits(head)) break;
      const whole = head.prompt;
      if (whole > budget() && (chunkedPrefill ? budget() <= 0 : work.prefillTokens > 0)) break;
      this.queue.takeHead();
      this.counters.cachedTokens += head.cached;
      this.#memory.admit(head);
      head.running = true;
      this.#admitted.push(head);
      this.#take(work, head, chunkedPrefill ? Math.min(whole, budget()) : whole, batch);
    }
    work.prefillEnds = batch.ended.length;
    this.counters.prefillTokens += work.prefillTokens;
    return work;
  }

  /** Computes `chunk` tokens of the sequence's prompt in this step. */
  #take(work: EngineStep, sequence: Sequence, chunk: number, batch: MicroBatch): void {
    const before = sequence.cached + sequence.prefilled;
    work.prefillPairs += chunk * (before + (chunk + 1) / 2);
    work.prefillWindowPairs += pairsInWindow(before, chunk, this.#model.window);
    work.prefillKeys += before + chunk;
    work.prefillTokens += chunk;
    sequence.prefilled += chunk;
    if (sequence.prefilled === sequence.prompt) {
      sequence.batch = batch.index;
      batch.ended.push(sequence);
    } else this.#partial = sequence;
  }

  /** Ends a step. Its tokens are known at `now`. */
  complete(batch: MicroBatch, now: number): void {
    batch.stepping = false;
    this.endFinished(batch, now);
    const { ended } = batch;
    batch.ended = [];
    for (const sequence of ended) this.#begin(batch, sequence, now);
  }

  /** Starts to decode a sequence: its prompt is computed and its first token is available. */
  #begin(batch: MicroBatch, sequence: Sequence, now: number): void {
    if (sequence.firstToken < 0) sequence.firstToken = now;
    sequence.base = sequence.prompt + sequence.cached;
    this.#memory.keepPrefix(sequence);
    // The prefill of this engine produced one token of the response. If another engine computed the prompt, this engine
    // has produced none yet.
    if (sequence.prompt > 0) sequence.remaining--;
    if (sequence.remaining <= 0) return this.#end(sequence, sequence.base, now);
    batch.decoding.join(sequence);
  }

  #end(sequence: Sequence, held: number, now: number): void {
    this.#memory.giveBack(sequence, held);
    sequence.running = false;
    this.#trimAdmitted();
    this.#finished(sequence.request, sequence.firstToken, now);
  }

  #trimAdmitted(): void {
    while (this.#admitted.length > 0 && !this.#admitted.at(-1)?.running) this.#admitted.pop();
    if (this.#admitted.length > 4 * this.limits.maxSequences)
      this.#admitted = this.#admitted.filter(({ running }) => running);
  }

  /** Preempts the newest sequences of a micro-batch until there are enough blocks for its next decode step. */
  makeRoom({ decoding, index }: MicroBatch, now: number): void {
    while (decoding.size > 0 && decoding.cramped) {
      const newest = this.#takeNewest(index);
      if (newest === undefined) return;
      newest.running = false;
      newest.epoch++;
      this.counters.preemptions++;
      if (newest === this.#partial) {
        this.#partial = undefined;
        this.#memory.giveBack(newest, newest.prompt + newest.cached);
      } else {
        const held = decoding.leave(newest);
        this.#memory.giveBack(newest, held);
        newest.remaining -= held - newest.base;
        // A preempted sequence loses the keys and values that another engine computed, so this engine must compute
        // them.
        if (newest.prompt === 0) newest.cached = 0;
        newest.prompt = held + 1 - newest.cached;
        if (decoding.size === 0 && this.blocks.blocksFor(held + 1) + newest.fixed > this.blocks.total) {
          this.counters.refused++;
          this.#finished(newest.request, undefined, now);
          continue;
        }
      }
      newest.prefilled = 0;
      this.queue.giveBack(newest);
    }
  }

  /**
   * Removes the newest admitted sequence of a micro-batch. A pipeline spares a prompt that is partly computed, because a
   * part of it may be under way in another micro-batch.
   */
  #takeNewest(batch: number): Sequence | undefined {
    this.#trimAdmitted();
    if (this.batches.length === 1) return this.#admitted.pop();
    const at = this.#admitted.findLastIndex((one) => one.running && one.batch === batch && one !== this.#partial);
    return this.#admitted.splice(at, at < 0 ? 0 : 1)[0];
  }

  /** Adds `steps` tokens to all decoding sequences of a micro-batch. */
  decoded({ decoding }: MicroBatch, steps: number): void {
    this.counters.decodeTokens += steps * decoding.size;
    decoding.advance(steps);
  }

  /** Removes the sequences that have all their tokens. */
  endFinished({ decoding }: MicroBatch, now: number): void {
    for (let done = decoding.takeFinished(); done !== undefined; done = decoding.takeFinished())
      this.#end(done, decoding.leave(done), now);
  }

  /** Completes all steps under way, so that every running sequence is between two steps. */
  #settle(): void {
    for (const batch of this.batches) if (batch.stepping) this.complete(batch, batch.readyAt);
  }
}

function waitingHeld({ request, prompt, cached, remaining, firstToken }: Sequence): HeldRequest {
  const since = firstToken < 0 ? undefined : firstToken;
  return { request, tokens: prompt + cached, computed: prompt === 0, remaining, firstToken: since };
}
