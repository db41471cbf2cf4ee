import type { StepModel } from '../roofline/step-model.ts';
import type { EngineCounters } from './engine-counters.ts';
import type { SimulatedEngineLimits } from './engine-limits.ts';
import { EngineScheduler, type HeldRequest, type OnFinished } from './engine-scheduler.ts';
import { PipelineSteps } from './pipeline-steps.ts';
import { SerialSteps } from './serial-steps.ts';

export type { HeldRequest, OnFinished } from './engine-scheduler.ts';

/**
 * One engine with continuous batching (Orca, OSDI'22) and blocks as in vLLM (SOSP'23), as a discrete-event simulation.
 */
export class SimulatedEngine {
  readonly #scheduler: EngineScheduler;
  readonly #steps: SerialSteps | PipelineSteps;

  constructor(model: StepModel, limits: SimulatedEngineLimits, finished: OnFinished) {
    this.#scheduler = new EngineScheduler(model, limits, finished);
    this.#steps =
      model.stageShares.length > 1
        ? new PipelineSteps(model, this.#scheduler)
        : new SerialSteps(model, this.#scheduler);
  }

  /** Time of the simulation, seconds. */
  get clock(): number {
    return this.#steps.clock;
  }

  get counters(): EngineCounters {
    return this.#scheduler.counters;
  }

  /**
   * Share of the memory for keys and values that running sequences hold; a prefix cache's idle blocks count as free.
   */
  get memoryInUse(): number {
    return this.#scheduler.blocks.used;
  }

  /** Number of requests that it holds, running or waiting. */
  get load(): number {
    return this.#scheduler.load;
  }

  /** Number of requests that wait for a place in the batch. */
  get waiting(): number {
    return this.#scheduler.queue.all;
  }

  /** Sequences that decode now, and the seconds until their next token. */
  get decoding(): { sequences: { tokens: number; remaining: number }[]; tokenS: number } {
    return { sequences: this.#scheduler.decoding(), tokenS: this.#steps.tokenS };
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
    this.#scheduler.push(request, arrival, input, output, stored, hashes);
  }

  /** Runs steps until the next one would begin at `until` or later. */
  run(until: number): void {
    this.#steps.run(until);
  }

  /**
   * Removes and returns up to `most` requests that another replica shall serve: first waiting requests and then running
   * requests, in each case the newest first. A partly computed prompt is lost.
   */
  takeRequests(most?: number): HeldRequest[] {
    return this.#scheduler.takeRequests(most);
  }

  /** Returns all requests in the form of `takeRequests`, without removing them. */
  held(): HeldRequest[] {
    return this.#scheduler.held();
  }
}
