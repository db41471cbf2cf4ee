import { cacheLayout, freeBytes } from '../roofline/model-deployment.ts';
import { type EngineStep, IDLE_STEP, type StepModel } from '../roofline/step-model.ts';
import { DecodeBatch, pairsInWindow } from './decode-batch.ts';
import { replicaLimits, type SimulatedEngineLimits } from './engine-limits.ts';
import { KvBlocks } from './kv-blocks.ts';
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

interface ReplicaCounters {
  steps: number;
  decodeTokens: number;
  prefillTokens: number;
  /** Number of prompt tokens that the prefix cache held. */
  cachedTokens: number;
  preemptions: number;
  refused: number;
  /** Seconds in which a step was running. */
  busy: number;
  /** Seconds that the arithmetic of all steps would take at the GPU's peak. */
  peakCompute: number;
  /** Integral of the share of used blocks over the time in which a step was running. */
  kvBusy: number;
  kvPeak: number;
}

/**
 * One engine with continuous batching (Orca, OSDI'22) and blocks as in vLLM (SOSP'23), as a discrete-event simulation.
 * Between two changes of its batch, steps differ only in the context, which grows by one token per sequence. So their
 * sum is a closed form, and a thousand steps cost as much as one.
 */
export class SimulatedEngine {
  clock = 0;
  readonly counters: ReplicaCounters = {
    steps: 0,
    decodeTokens: 0,
    prefillTokens: 0,
    cachedTokens: 0,
    preemptions: 0,
    refused: 0,
    busy: 0,
    peakCompute: 0,
    kvBusy: 0,
    kvPeak: 0,
  };
  readonly #model: StepModel;
  readonly #limits: SimulatedEngineLimits;
  readonly #finished: OnFinished;
  readonly #blocks: KvBlocks;
  readonly #queue: Queue;
  readonly #decoding: DecodeBatch;
  readonly #memory: ReplicaMemory;
  #partial: Sequence | undefined;
  /**
   * Sequences in order of admission, because the newest is preempted first. Ended sequences are removed when they are
   * the newest.
   */
  #admitted: Sequence[] = [];

  constructor(model: StepModel, limits: SimulatedEngineLimits, finished: OnFinished) {
    this.#model = model;
    this.#limits = replicaLimits(limits, model.deployment);
    this.#finished = finished;
    this.#queue = new Queue(limits.prefixHit);
    const { deployment } = model;
    this.#blocks = new KvBlocks(
      freeBytes(deployment, limits.memoryFraction),
      limits.blockTokens,
      cacheLayout(deployment),
    );
    this.#decoding = new DecodeBatch(this.#blocks, model.window);
    this.#memory = new ReplicaMemory(this.#blocks, limits.prefixBlockTokens);
  }

  /**
   * Share of the memory for keys and values that running sequences hold; a prefix cache's idle blocks count as free.
   */
  get memoryInUse(): number {
    return this.#blocks.used;
  }

  /** Number of requests that it holds, running or waiting. */
  get load(): number {
    return this.#decoding.size + this.#queue.all + (this.#partial ? 1 : 0);
  }

  /** Number of requests that wait for a place in the batch. */
  get waiting(): number {
    return this.#queue.all;
  }

  /** Sequences that decode now, and the seconds until their next token. */
  get decoding(): { sequences: { tokens: number; remaining: number }[]; tokenS: number } {
    const { size, context, windowContext } = this.#decoding;
    const sequences = this.#admitted.flatMap((one) => {
      if (!one.running || one === this.#partial) return [];
      const tokens = this.#decoding.held(one);
      return [{ tokens, remaining: one.remaining - (tokens - one.base) }];
    });
    return { sequences, tokenS: this.#model.seconds({ ...IDLE_STEP, decodes: size, context, windowContext }) };
  }

  /**
   * Adds a request; requests must be added in order of arrival. `stored`: another engine has computed the prompt's keys
   * and values (disaggregated prefill). As an engine does, refuses a prompt that fills the model's context, and ends a
   * response when the context is full.
   */
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
    const full = hashes?.slice(0, Math.floor(input / this.#limits.prefixBlockTokens));
    const within = context > 0 ? Math.min(output, context - input) : output;
    this.#queue.push({
      request,
      arrival,
      input,
      output: within,
      stored,
      ...(full === undefined ? {} : { hashes: full }),
    });
  }

  /** Runs steps until the next one would begin at `until` or later. */
  run(until: number): void {
    for (;;) {
      this.#queue.arrive(this.clock);
      if (this.#idle()) {
        const next = this.#queue.nextArrival;
        if (next === undefined || next >= until) return;
        this.clock = Math.max(this.clock, next);
        continue;
      }
      if (this.clock >= until) return;
      if (this.#partial || this.#admissible()) this.#mixedStep();
      else if (this.#decoding.size > 0) this.#decodeSteps(until);
      else this.#refuse();
    }
  }

  /**
   * Removes and returns up to `most` requests that another replica shall serve: first waiting requests and then running
   * requests, in each case the newest first. A partly computed prompt is lost.
   */
  takeRequests(most = Number.POSITIVE_INFINITY): HeldRequest[] {
    const held: HeldRequest[] = [];
    while (held.length < most) {
      const waiting = this.#queue.takeNewest();
      if (waiting === undefined) break;
      held.push(waitingHeld(waiting));
    }
    while (held.length < most) {
      const newest = this.#admitted.pop();
      if (newest === undefined) break;
      if (!newest.running) continue;
      const left = this.#runningHeld(newest);
      if (left.computed) this.#decoding.leave(newest);
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
    const running = this.#admitted.filter((one) => one.running);
    return [...this.#queue.sequences().map(waitingHeld), ...running.map((one) => this.#runningHeld(one))];
  }

  #runningHeld(sequence: Sequence): HeldRequest {
    if (sequence === this.#partial) return { ...waitingHeld(sequence), computed: false };
    const tokens = this.#decoding.held(sequence);
    const remaining = sequence.remaining - (tokens - sequence.base);
    return { ...waitingHeld(sequence), tokens, computed: true, remaining };
  }

  #idle(): boolean {
    return this.#decoding.size === 0 && this.#partial === undefined && this.#queue.waiting === 0;
  }

  /** True if the first request of the queue can begin in the next step. */
  #admissible(): boolean {
    const head = this.#queue.head;
    return head !== undefined && this.#decoding.size < this.#limits.maxSequences && this.#memory.fits(head);
  }

  /** Refuses the first request of the queue. It does not fit although no other request runs, so it can never fit. */
  #refuse(): void {
    const head = this.#queue.head;
    if (head === undefined) return;
    this.#queue.takeHead();
    this.counters.refused++;
    this.#finished(head.request, undefined, this.clock);
  }

  /** Runs a step that includes prompts. */
  #mixedStep(): void {
    const { tokenBudget, chunkedPrefill, maxSequences, schedule } = this.#limits;
    if (schedule === 'mixed' && this.#decoding.size > 0) this.#makeRoom();
    const decoding = schedule === 'mixed' ? this.#decoding.size : 0;
    const work: EngineStep = { ...IDLE_STEP, decodes: decoding };
    const ended: Sequence[] = [];
    const budget = () => tokenBudget - decoding - work.prefillTokens;
    const partial = this.#partial;
    if (partial) {
      this.#partial = undefined;
      this.#take(work, partial, Math.min(partial.prompt - partial.prefilled, Math.max(1, budget())), ended);
    }
    while (this.#partial === undefined && this.#decoding.size + ended.length < maxSequences) {
      const head = this.#queue.head;
      if (head === undefined || !this.#memory.fits(head)) break;
      const whole = head.prompt;
      if (whole > budget() && (chunkedPrefill ? budget() <= 0 : work.prefillTokens > 0)) break;
      this.#queue.takeHead();
      this.counters.cachedTokens += head.cached;
      this.#memory.admit(head);
      head.running = true;
      this.#admitted.push(head);
      this.#take(work, head, chunkedPrefill ? Math.min(whole, budget()) : whole, ended);
    }
    if (work.prefillTokens === 0 && ended.length === 0 && decoding === 0) return this.#stuck();
    work.prefillEnds = ended.length;
    this.#mixedTime(work);
    if (decoding > 0) this.#advance(1);
    for (const sequence of ended) this.#begin(sequence);
  }

  /** Computes `chunk` tokens of the sequence's prompt in this step. */
  #take(work: EngineStep, sequence: Sequence, chunk: number, ended: Sequence[]): void {
    const before = sequence.cached + sequence.prefilled;
    work.prefillPairs += chunk * (before + (chunk + 1) / 2);
    work.prefillWindowPairs += pairsInWindow(before, chunk, this.#model.window);
    work.prefillKeys += before + chunk;
    work.prefillTokens += chunk;
    sequence.prefilled += chunk;
    if (sequence.prefilled === sequence.prompt) ended.push(sequence);
    else this.#partial = sequence;
  }

  /**
   * Called if a step has no work, which is impossible if blocks are counted correctly. Throws, because a loop without
   * progress would block the caller.
   */
  #stuck(): void {
    throw new Error('a simulated step has no tokens');
  }

  #mixedTime(step: EngineStep): void {
    const { size, context, windowContext, widening } = this.#decoding;
    if (step.decodes > 0) {
      step.context = context + size;
      step.windowContext = windowContext + widening;
    }
    this.#spend(this.#model.seconds(step), 1, step.decodes + step.prefillTokens);
    this.counters.prefillTokens += step.prefillTokens;
  }

  #spend(seconds: number, steps: number, tokens: number): void {
    const { used } = this.#blocks;
    this.clock += seconds;
    this.counters.busy += seconds;
    this.counters.steps += steps;
    this.counters.kvBusy += used * seconds;
    if (used > this.counters.kvPeak) this.counters.kvPeak = used;
    this.counters.peakCompute += this.#model.peakComputeSeconds(tokens);
  }

  /** Starts to decode a sequence: its prompt is computed and its first token is available. */
  #begin(sequence: Sequence): void {
    if (sequence.firstToken < 0) sequence.firstToken = this.clock;
    sequence.base = sequence.prompt + sequence.cached;
    this.#memory.keepPrefix(sequence);
    // The prefill of this engine produced one token of the response. If another engine computed the prompt, this engine
    // has produced none yet.
    if (sequence.prompt > 0) sequence.remaining--;
    if (sequence.remaining <= 0) return this.#end(sequence, sequence.base);
    this.#decoding.join(sequence);
  }

  #end(sequence: Sequence, held: number): void {
    this.#memory.giveBack(sequence, held);
    sequence.running = false;
    this.#trimAdmitted();
    this.#finished(sequence.request, sequence.firstToken, this.clock);
  }

  #trimAdmitted(): void {
    while (this.#admitted.length > 0 && !this.#admitted.at(-1)?.running) this.#admitted.pop();
    if (this.#admitted.length > 4 * this.#limits.maxSequences)
      this.#admitted = this.#admitted.filter(({ running }) => running);
  }

  /** Preempts the newest sequences until there are enough blocks for the next decode step. */
  #makeRoom(): void {
    while (this.#decoding.size > 0 && this.#decoding.cramped) {
      const newest = this.#admitted.pop();
      if (newest === undefined) return;
      if (!newest.running) continue;
      newest.running = false;
      newest.epoch++;
      this.counters.preemptions++;
      if (newest === this.#partial) {
        this.#partial = undefined;
        this.#memory.giveBack(newest, newest.prompt + newest.cached);
      } else {
        const held = this.#decoding.leave(newest);
        this.#memory.giveBack(newest, held);
        newest.remaining -= held - newest.base;
        // A preempted sequence loses the keys and values that another engine computed, so this engine must compute
        // them.
        if (newest.prompt === 0) newest.cached = 0;
        newest.prompt = held + 1 - newest.cached;
        if (this.#decoding.size === 0 && this.#blocks.blocksFor(held + 1) + newest.fixed > this.#blocks.total) {
          this.counters.refused++;
          this.#finished(newest.request, undefined, this.clock);
          continue;
        }
      }
      newest.prefilled = 0;
      this.#queue.giveBack(newest);
    }
  }

  /** Runs decode steps until the batch changes, a request arrives or `until` is reached. */
  #decodeSteps(until: number): void {
    this.#makeRoom();
    const n = this.#decoding.size;
    if (n === 0) return;
    const room = this.#decoding.stepsToChange();
    // While a request waits for a place in the batch, a new arrival does not affect the steps.
    const next = this.#queue.waiting > 0 ? undefined : this.#queue.nextArrival;
    const horizon = Math.min(until, next ?? Number.POSITIVE_INFINITY) - this.clock;
    const base = this.#model.decodeBase(n);
    const { secondsPerContextToken: slope, secondsPerWindowToken: windowSlope } = this.#model;
    const { context, windowContext, widening } = this.#decoding;
    // Step i of k reads context + n(i+1) tokens, which sums to: k base + slope (k context + n k(k+1)/2). The part
    // inside windows grows by one token for each sequence that is shorter than the window.
    const linear = base + slope * (context + n / 2) + windowSlope * (windowContext + widening / 2);
    const quadratic = (slope * n + windowSlope * widening) / 2;
    let steps = room;
    if (steps * linear + quadratic * steps * steps > horizon) {
      const root = horizon <= 0 ? 0 : (2 * horizon) / (linear + Math.sqrt(linear * linear + 4 * quadratic * horizon));
      steps = Math.min(steps, Math.max(1, Math.ceil(root - 1e-9)));
    }
    this.#spend(steps * linear + quadratic * steps * steps, steps, n * steps);
    this.#advance(steps);
  }

  /** Adds `steps` tokens to all decoding sequences, and removes those that are finished. */
  #advance(steps: number): void {
    this.counters.decodeTokens += steps * this.#decoding.size;
    this.#decoding.advance(steps);
    for (let done = this.#decoding.takeFinished(); done !== undefined; done = this.#decoding.takeFinished())
      this.#end(done, this.#decoding.leave(done));
  }
}

function waitingHeld({ request, prompt, cached, remaining, firstToken }: Sequence): HeldRequest {
  const since = firstToken < 0 ? undefined : firstToken;
  return { request, tokens: prompt + cached, computed: prompt === 0, remaining, firstToken: since };
}
