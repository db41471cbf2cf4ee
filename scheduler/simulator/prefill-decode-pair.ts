import type { StepModel } from '../roofline/step-model.ts';
import type { SimulatedEngineLimits } from './engine-limits.ts';
import { type OnFinished, SimulatedEngine } from './simulated-engine.ts';

/** The prefill engine of a disaggregated pair, and the bytes/s of the link to its decode engine. */
export interface PrefillSide {
  step: StepModel;
  bytesPerSecond: number;
}

/** A replica that accepts requests: one engine, or a pair of engines. */
export interface ServingEngine {
  /** Time of the simulation, seconds. */
  readonly clock: number;
  /** Number of requests that it holds, running or waiting. */
  readonly load: number;
  push(
    request: number,
    arrival: number,
    input: number,
    output: number,
    stored?: boolean,
    hashes?: readonly number[],
  ): void;
  run(until: number): void;
}

/**
 * Two engines that serve as one replica (DistServe, OSDI'24): the prefill engine computes the prompts; the decode
 * engine receives their keys and values and decodes. As with vLLM's NixlConnector, the decode engine produces every
 * token of the response, including the first. Keys and values cross the link one request after another. The prefill
 * engine's memory counts as free when a prompt is computed.
 */
export class PairReplica implements ServingEngine {
  readonly prefill: SimulatedEngine;
  readonly decode: SimulatedEngine;
  readonly #sent = new Map<number, { input: number; output: number }>();
  readonly #side: PrefillSide;
  readonly #finished: OnFinished;
  /** Time at which the link becomes free, seconds. */
  #linkFree = 0;

  constructor(decode: StepModel, side: PrefillSide, limits: SimulatedEngineLimits, finished: OnFinished) {
    this.#side = side;
    this.#finished = finished;
    this.prefill = new SimulatedEngine(side.step, limits, (request, first, end) => this.#handOver(request, first, end));
    const firstStep = decode.decodeBase(1);
    this.decode = new SimulatedEngine(decode, limits, (request, first, end) =>
      finished(request, first === undefined ? undefined : Math.min(end, first + firstStep), end),
    );
  }

  get clock(): number {
    return Math.max(this.prefill.clock, this.decode.clock);
  }

  get load(): number {
    return this.prefill.load + this.decode.load;
  }

  push(
    request: number,
    arrival: number,
    input: number,
    output: number,
    _stored = false,
    hashes?: readonly number[],
  ): void {
    this.#sent.set(request, { input, output });
    this.prefill.push(request, arrival, input, 1, false, hashes);
  }

  #handOver(request: number, first: number | undefined, end: number): void {
    const { input, output } = this.#sent.get(request) ?? { input: 1, output: 1 };
    this.#sent.delete(request);
    if (first === undefined) return this.#finished(request, undefined, end);
    const { step, bytesPerSecond } = this.#side;
    this.#linkFree = Math.max(this.#linkFree, end) + step.transferSeconds(input, bytesPerSecond);
    this.decode.push(request, this.#linkFree, input, output, true);
  }

  run(until: number): void {
    this.prefill.run(until);
    this.decode.run(until);
  }
}

/** Opens the engine or the engines of one replica. `parts`: its engines, each with separate counters. */
export function openReplica(
  step: StepModel,
  prefill: PrefillSide | undefined,
  limits: SimulatedEngineLimits,
  finished: OnFinished,
): { engine: ServingEngine; parts: { step: StepModel; engine: SimulatedEngine }[] } {
  if (prefill === undefined) {
    const engine = new SimulatedEngine(step, limits, finished);
    return { engine, parts: [{ step, engine }] };
  }
  const pair = new PairReplica(step, prefill, limits, finished);
  return {
    engine: pair,
    parts: [
      { step: prefill.step, engine: pair.prefill },
      { step, engine: pair.decode },
    ],
  };
}
