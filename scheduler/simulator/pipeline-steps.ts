import type { MicroBatchTimes } from '../roofline/pipeline-stages.ts';
import type { StepModel } from '../roofline/step-model.ts';
import type { EngineScheduler } from './engine-scheduler.ts';
import type { MicroBatch } from './micro-batch.ts';
import { PipelineClock } from './pipeline-clock.ts';

/** A pipeline leaps over at least this many rounds; fewer are run one at a time, which is exact. */
const LEAP_MIN = 4;

/** The steps of an engine with a pipeline: micro-batches make their steps as soon as their last tokens are known. */
export class PipelineSteps {
  clock = 0;
  readonly #model: StepModel;
  readonly #scheduler: EngineScheduler;
  readonly #stages: PipelineClock;

  constructor(model: StepModel, scheduler: EngineScheduler) {
    this.#model = model;
    this.#scheduler = scheduler;
    this.#stages = new PipelineClock(model.stageShares);
  }

  /** Seconds until every decoding sequence has its next token. */
  get tokenS(): number {
    return this.#roundSeconds(this.#scheduler.batches, 0);
  }

  run(until: number): void {
    const { batches, queue } = this.#scheduler;
    for (;;) {
      queue.arrive(this.clock);
      for (const batch of batches)
        if (batch.stepping && batch.readyAt <= this.clock) this.#scheduler.complete(batch, batch.readyAt);
      if (this.clock < until) {
        this.#startSteps();
        if (this.#scheduler.blocked) {
          this.#scheduler.refuse(this.clock);
          continue;
        }
        this.#leap(until);
      }
      const next = this.#nextEvent();
      if (next === undefined || next >= until) return;
      this.clock = Math.max(this.clock, next);
    }
  }

  /** Time at which tokens of a micro-batch are known or, if a micro-batch is free, a request arrives. */
  #nextEvent(): number | undefined {
    let next: number | undefined;
    let free = false;
    for (const { stepping, readyAt } of this.#scheduler.batches) {
      if (stepping || readyAt > this.clock) next = Math.min(readyAt, next ?? Number.POSITIVE_INFINITY);
      else free = true;
    }
    const arrival = free ? this.#scheduler.queue.nextArrival : undefined;
    return arrival === undefined ? next : Math.min(arrival, next ?? Number.POSITIVE_INFINITY);
  }

  /** Starts a step of each micro-batch that waits for none, first of those with decoding sequences. */
  #startSteps(): void {
    const { batches } = this.#scheduler;
    const isWaiting = ({ stepping, readyAt }: MicroBatch) => !stepping && readyAt <= this.clock;
    for (const batch of batches) if (isWaiting(batch) && batch.decoding.size > 0) this.#startStep(batch);
    for (const batch of batches) if (isWaiting(batch)) this.#startStep(batch);
  }

  #startStep(batch: MicroBatch): void {
    const { limits, counters, blocks } = this.#scheduler;
    const decodes = limits.schedule === 'mixed' || !this.#scheduler.hasPrompts;
    const work = this.#scheduler.nextStep(batch, decodes, this.clock);
    const tokens = work.decodes + work.prefillTokens;
    if (tokens === 0 && batch.ended.length === 0) return;
    batch.stepping = true;
    batch.readyAt = this.#stages.pass(this.clock, this.#model.microBatch(work, this.#scheduler.running));
    counters.ran(this.clock, batch.readyAt, blocks.used);
    counters.steps++;
    counters.peakCompute += this.#model.peakComputeSeconds(tokens);
    if (work.decodes > 0) this.#scheduler.decoded(batch, 1);
  }

  /** Seconds of a round of these micro-batches, `ahead` rounds from now. */
  #roundSeconds(batches: readonly MicroBatch[], ahead: number): number {
    return this.#stages.roundSeconds(this.#timesOf(batches, ahead));
  }

  #timesOf(batches: readonly MicroBatch[], ahead: number): MicroBatchTimes[] {
    const { running } = this.#scheduler;
    return batches.map((batch) => this.#model.microBatch(batch.decodeStep(ahead), running));
  }

  /** While every micro-batch only decodes, the pipeline repeats its rounds: leaps over many of them. */
  #leap(until: number): void {
    const decoding = this.#scheduler.batches.filter((batch) => batch.size > 0);
    if (decoding.length === 0 || decoding.some(({ stepping, ended }) => !stepping || ended.length > 0)) return;
    const { blocks, queue, counters } = this.#scheduler;
    let rounds = Math.min(...decoding.map((batch) => batch.decoding.stepsToEnd()));
    const taken = (steps: number) => decoding.reduce((sum, batch) => sum + batch.decoding.blocksFor(steps), 0);
    while (rounds >= LEAP_MIN && taken(rounds) > blocks.free) rounds >>= 1;
    if (rounds < LEAP_MIN || this.#scheduler.hasPrompts || !this.#stages.inTurn(this.#timesOf(decoding, 0))) return;
    const next = queue.waiting > 0 ? undefined : queue.nextArrival;
    const horizon = Math.min(until, next ?? Number.POSITIVE_INFINITY) - this.clock;
    if (Number.isFinite(horizon))
      rounds = Math.min(rounds, Math.floor(horizon / this.#roundSeconds(decoding, rounds)) - 1);
    if (rounds < LEAP_MIN) return;
    // The context grows by the same number of tokens in each round, so the mean round is the one in the middle.
    const seconds = rounds * this.#roundSeconds(decoding, (rounds - 1) / 2);
    const end = Math.max(...decoding.map(({ readyAt }) => readyAt)) + seconds;
    for (const batch of decoding) {
      counters.steps += rounds;
      counters.peakCompute += rounds * this.#model.peakComputeSeconds(batch.decoding.size);
      this.#scheduler.decoded(batch, rounds);
      batch.readyAt += seconds;
    }
    counters.ran(this.clock, end, blocks.used);
    this.#stages.leap(seconds);
    this.clock += seconds;
  }
}
