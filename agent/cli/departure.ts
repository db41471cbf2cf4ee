/** How an agent goes: what is published, what is waited for, and for how long. */
import type { Writable } from 'node:stream';
import { describeExit, type EngineExit } from '../engine/child.ts';
import type { Engine } from '../engine/engine.ts';
import type { DrainPlan } from './drain-plan.ts';
import { formatDuration } from './duration.ts';
import type { Gateways } from './gateways.ts';
import type { RecordKeeper } from './record.ts';
import { Once, within } from './wait.ts';

/** What there is to take leave of; an agent that ends early has only some of it. */
export interface Parts {
  engine?: Engine;
  keeper?: RecordKeeper;
  gateways?: Gateways;
}

/** Answers already on their way when the engine died are passed on; nothing new can come. */
const LAST_ANSWERS_MS = 2000;

/** When forced, the last word to the gateways may take this long. */
const FORCED_FAREWELL_MS = 250;

/** Lines of the engine's output repeated after its end: a traceback's last call and its error. */
const LAST_LINES = 12;

export class Departure {
  readonly #parts: Parts;
  readonly #log: (line: string) => void;
  readonly #forced = new Once<void>();
  readonly #shortened = new Once<void>();

  constructor(parts: Parts, log: (line: string) => void) {
    this.#parts = parts;
    this.#log = log;
  }

  /** No more patience with anybody. */
  force(): void {
    this.#forced.settle();
  }

  /** A drain in progress waits no longer than this from now. */
  shorten(drainMs: number): void {
    setTimeout(() => this.#shortened.settle(), drainMs).unref();
  }

  /** DOWN, running requests, LEFT, engine. */
  async drain({ drainMs, graceMs }: DrainPlan, why: string): Promise<void> {
    const { keeper, gateways } = this.#parts;
    this.#log(`${why}: draining, ${gateways?.inFlight ?? 0} requests running, at most ${formatDuration(drainMs)}`);
    keeper?.change({ state: 'DOWN' });
    const drained = gateways?.drain() ?? Promise.resolve();
    await within(drainMs, Promise.race([drained, this.#sooner()]));
    const left = gateways?.inFlight ?? 0;
    if (left > 0) this.#log(`${left} requests still running; leaving all the same`);
    await this.#leave(graceMs);
  }

  /** A part of an engine on another rank: the requests that rank 0 waits for are computed here as well. */
  async keep({ drainMs, graceMs }: DrainPlan, why: string): Promise<void> {
    this.#log(`${why}: keeping this part of the engine for up to ${formatDuration(drainMs)}`);
    await within(drainMs, this.#sooner());
    await this.#leave(graceMs);
  }

  /** DOWN at once; what the engine said last; LEFT; the rest of its processes. */
  async afterEngine(exit: EngineExit, graceMs: number, stderr: Writable): Promise<void> {
    const { engine, keeper, gateways } = this.#parts;
    keeper?.change({ state: 'DOWN' });
    this.#log(describeExit(exit));
    const lines = engine?.lastLines(LAST_LINES) ?? [];
    if (lines.length > 0) stderr.write(`${['its last lines were:', ...lines].join('\n  ')}\n`);
    await within(LAST_ANSWERS_MS, Promise.race([gateways?.drain() ?? Promise.resolve(), this.#forced.promise]));
    await this.#leave(graceMs);
  }

  /** Nobody wants to hear from this agent any more. */
  async afterRefusal(graceMs: number): Promise<void> {
    await this.#parts.gateways?.close();
    await this.#parts.engine?.stop(graceMs, this.#forced.promise);
  }

  /** Ends a wait for running requests early; without an engine nothing can finish them. */
  #sooner(): Promise<unknown> {
    const gone = this.#parts.engine?.exited ?? new Promise<never>(() => {});
    return Promise.race([this.#forced.promise, this.#shortened.promise, gone]);
  }

  async #leave(graceMs: number): Promise<void> {
    const { engine, keeper, gateways } = this.#parts;
    keeper?.change({ state: 'LEFT' });
    const farewell = (async () => {
      await keeper?.announced;
      await gateways?.close();
    })();
    const hurried = this.#forced.promise.then(() => within(FORCED_FAREWELL_MS, farewell));
    const ended = this.#forced.settled ? engine?.stop(0, this.#forced.promise) : undefined;
    await Promise.race([farewell, hurried]);
    await (ended ?? engine?.stop(graceMs, this.#forced.promise));
    this.#log('left');
  }
}
