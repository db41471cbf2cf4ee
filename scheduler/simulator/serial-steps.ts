import { IDLE_STEP, type StepModel } from '../roofline/step-model.ts';
import type { EngineScheduler } from './engine-scheduler.ts';
import type { MicroBatch } from './micro-batch.ts';

/**
 * The steps of an engine without a pipeline, one after another. Between two changes of its batch, steps differ only in
 * the context, which grows by one token per sequence. So their sum is a closed form, and a thousand steps cost as much as
 * one.
 */
export class SerialSteps {
  clock = 0;
  readonly #model: StepModel;
  readonly #scheduler: EngineScheduler;
  readonly #batch: MicroBatch;

  constructor(model: StepModel, scheduler: EngineScheduler) {
    this.#model = model;
    this.#scheduler = scheduler;
    const [batch] = scheduler.batches;
    if (batch === undefined) throw new Error('an engine has no batch');
    this.#batch = batch;
  }

  /** Seconds until every decoding sequence has its next token. */
  get tokenS(): number {
    const { size, context, windowContext } = this.#batch.decoding;
    return this.#model.seconds({ ...IDLE_STEP, decodes: size, context, windowContext });
  }

  run(until: number): void {
    const { queue } = this.#scheduler;
    for (;;) {
      queue.arrive(this.clock);
      if (this.#scheduler.idle) {
        const next = queue.nextArrival;
        if (next === undefined || next >= until) return;
        this.clock = Math.max(this.clock, next);
        continue;
      }
      if (this.clock >= until) return;
      if (this.#scheduler.hasPrompts) this.#mixedStep();
      else if (this.#batch.decoding.size > 0) this.#decodeSteps(until);
      else this.#scheduler.refuse(this.clock);
    }
  }

  /** Runs a step that includes prompts. */
  #mixedStep(): void {
    const work = this.#scheduler.nextStep(this.#batch, this.#scheduler.limits.schedule === 'mixed', this.clock);
    // Impossible if blocks are counted correctly. A loop without progress would block the caller.
    if (work.prefillTokens === 0 && this.#batch.ended.length === 0 && work.decodes === 0)
      throw new Error('a simulated step has no tokens');
    this.#spend(this.#model.seconds(work), 1, work.decodes + work.prefillTokens);
    if (work.decodes > 0) this.#scheduler.decoded(this.#batch, 1);
    this.#scheduler.complete(this.#batch, this.clock);
  }

  #spend(seconds: number, steps: number, tokens: number): void {
    const { counters, blocks } = this.#scheduler;
    const begin = this.clock;
    this.clock += seconds;
    counters.ran(begin, this.clock, blocks.used);
    counters.steps += steps;
    counters.peakCompute += this.#model.peakComputeSeconds(tokens);
  }

  /** Runs decode steps until the batch changes, a request arrives or `until` is reached. */
  #decodeSteps(until: number): void {
    const { decoding } = this.#batch;
    this.#scheduler.makeRoom(this.#batch, this.clock);
    const n = decoding.size;
    if (n === 0) return;
    const room = decoding.stepsToChange();
    const { queue } = this.#scheduler;
    // While a request waits for a place in the batch, a new arrival does not affect the steps.
    const next = queue.waiting > 0 ? undefined : queue.nextArrival;
    const horizon = Math.min(until, next ?? Number.POSITIVE_INFINITY) - this.clock;
    const base = this.#model.decodeBase(n);
    const { secondsPerContextToken: slope, secondsPerWindowToken: windowSlope } = this.#model;
    const { context, windowContext, widening } = decoding;
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
    this.#scheduler.decoded(this.#batch, steps);
    this.#scheduler.endFinished(this.#batch, this.clock);
  }
}
