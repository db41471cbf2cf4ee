/**
 * Loads and unloads a model of the running engine by order. Today that is sleep and wake: a sleeping engine keeps its
 * process and frees its GPUs' memory. While it sleeps it gets no request, and its models are published as `asleep`.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { DeploymentError } from '../../shared/deployment/deployment-error.ts';
import type { LoadRequest, UnloadRequest } from '../../shared/deployment/deployment-order.ts';
import { MODEL_REASON_MAX, type ServedModel } from '../../shared/lattice/node-record.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { OrderOutcome } from '../deploy/deployment-decider.ts';
import type { Engine } from './engine.ts';
import type { EngineTarget } from './engine-address.ts';
import { type EngineControl, EngineControlError, engineControl, type SleepLevel } from './engine-control.ts';
import type { EngineHealth } from './engine-health.ts';
import { probeForToken } from './token-probe.ts';

/**
 * Maximum time of each call that puts an engine to sleep or wakes it. At level 2 it reads hundreds of GB from a busy
 * file system.
 */
const CALL_MS = 30 * 60_000;
/** Time in which a woken engine must answer with a token. Its first request may compile kernels. */
const TOKEN_MS = 60_000;
const POLL_MS = 50;

interface ModelControlOptions {
  engine(): Pick<Engine, 'health' | 'target'> | undefined;
  /** Number of requests and batch lines at the engine. */
  running(): number;
  /** Called when the states of the models have changed. */
  changed(): void;
  /** Milliseconds of a monotonic clock. */
  now(): number;
  log(line: string): void;
  /** Maximum time of a call. Default: CALL_MS. */
  callMs?: number;
  /** See `engineControl`. */
  settleMs?: number;
}

/**
 * `draining`: it gets no new request, and running ones finish. The engine's memory is free from `asleep` on. `waking`:
 * until it has answered again.
 */
type SleepPhase = 'draining' | 'asleep' | 'waking';

export class ModelControl {
  readonly #options: ModelControlOptions;
  /** Undefined while the engine is awake. */
  #sleep: { phase: SleepPhase; level: SleepLevel | undefined } | undefined;
  /** Milliseconds that the last wake took. */
  #wakeMs: number | undefined;
  /** Why the last change failed. */
  #problem: string | undefined;
  /** The running change. */
  #change: Promise<void> = Promise.resolve();
  /** Aborted if the engine must not go to sleep after all. */
  #drain = new AbortController();
  #wasAnswering = false;
  /** Grows when an engine has gone. A change that began before has no effect on the next engine. */
  #epoch = 0;

  constructor(options: ModelControlOptions) {
    this.#options = options;
  }

  /** True if the engine must get no request. */
  get isAsleep(): boolean {
    return this.#sleep !== undefined;
  }

  /** The models as they are published. */
  describe(models: readonly ServedModel[]): ServedModel[] {
    const reason = this.#problem === undefined ? {} : { reason: this.#problem };
    const wake = this.#wakeMs === undefined ? {} : { load_ms: this.#wakeMs };
    return models.map((model) => {
      if (this.#sleep === undefined || model.state !== 'ready') return { ...model, ...reason };
      return { ...model, state: 'asleep' as const, ...wake, ...reason };
    });
  }

  /**
   * Call this when the health changes. An engine that answers again is another process, which is awake; one that this
   * agent did not start may have been put to sleep by another program.
   */
  see({ answering }: Pick<EngineHealth, 'answering'>): void {
    const appeared = answering && !this.#wasAnswering;
    this.#wasAnswering = answering;
    if (!answering) {
      this.#epoch++;
      this.#drain.abort();
      this.#sleep = undefined;
    }
    if (appeared) neverRejects(this.#findSleeping());
  }

  async #findSleeping(): Promise<void> {
    const epoch = this.#epoch;
    const target = this.#options.engine()?.target;
    const asleep =
      target &&
      (await this.#controlOf(target)
        .isAsleep()
        .catch(() => undefined));
    if (asleep === true && this.#sleep === undefined) this.#set({ phase: 'asleep', level: undefined }, epoch);
  }

  /** Wakes the engine if it sleeps. @throws DeploymentError */
  load({ model }: LoadRequest): OrderOutcome {
    this.#requireModel(model);
    if (this.#sleep === undefined) return { answer: { kind: 'model', model, state: 'ready' } };
    const act = () => {
      if (this.#sleep?.phase === 'draining') this.#drain.abort();
      this.#then(() => this.#wake());
    };
    return { answer: { kind: 'model', model, state: 'loading' }, act };
  }

  /** Puts the engine to sleep when its running requests have finished. @throws DeploymentError, or rejects with it */
  async unload({ model, sleep: level, drain_ms: drainMs }: UnloadRequest): Promise<OrderOutcome> {
    const target = this.#requireModel(model);
    if (level === undefined)
      throw new DeploymentError('unsupported', `${model} is not an adapter: only sleep unloads it from this engine`);
    if (target.prefill !== undefined)
      throw new DeploymentError('unsupported', 'a prefill and a decode engine cannot sleep together');
    if (this.#sleep?.phase === 'asleep') return { answer: { kind: 'model', model, state: 'asleep' } };
    if (this.#sleep !== undefined) throw new DeploymentError('busy', `the engine is ${this.#sleep.phase} now`);
    await this.#controlOf(target).checkSleep(level).catch(refuse);
    const act = () => {
      if (this.#sleep !== undefined) return;
      this.#drain = new AbortController();
      this.#set({ phase: 'draining', level }, this.#epoch);
      this.#then(() => this.#fallAsleep(level, drainMs));
    };
    return { answer: { kind: 'model', model, state: 'asleep' }, act };
  }

  /** @throws DeploymentError if no engine answers, or if it does not list the model */
  #requireModel(model: string): EngineTarget {
    const engine = this.#options.engine();
    const target = engine?.target;
    if (engine === undefined || target === undefined || !engine.health.answering)
      throw new DeploymentError('nothing_deployed', 'no engine answers here');
    const models = engine.health.models.map(({ id }) => id);
    if (models.includes(model)) return target;
    throw new DeploymentError('unknown_model', `the engine serves no ${model}; it serves ${models.join(', ')}`);
  }

  async #fallAsleep(level: SleepLevel, drainMs: number): Promise<void> {
    const { running, now, log, engine } = this.#options;
    const epoch = this.#epoch;
    const { signal } = this.#drain;
    const until = now() + drainMs;
    try {
      for (; running() > 0 && !signal.aborted; await delay(POLL_MS))
        if (now() >= until) throw new EngineControlError(`${running()} requests still ran after ${drainMs} ms`);
      const target = engine()?.target;
      if (signal.aborted || target === undefined) return this.#set(undefined, epoch);
      await this.#controlOf(target).sleep(level, AbortSignal.timeout(this.#options.callMs ?? CALL_MS));
      log(`the engine sleeps at level ${level}`);
      this.#set({ phase: 'asleep', level }, epoch);
    } catch (error) {
      this.#failed('sleep', error);
      this.#set(undefined, epoch);
    }
  }

  async #wake(): Promise<void> {
    const { now, log, engine } = this.#options;
    const { target, health } = engine() ?? {};
    if (this.#sleep?.phase !== 'asleep' || target === undefined) return;
    const { level } = this.#sleep;
    const [since, epoch] = [now(), this.#epoch];
    this.#set({ phase: 'waking', level }, epoch);
    try {
      await this.#controlOf(target).wake(level, AbortSignal.timeout(this.#options.callMs ?? CALL_MS));
      await this.#requireToken(target, health?.models[0]?.id ?? '');
      this.#wakeMs = Math.round(now() - since);
      log(`the engine is awake after ${this.#wakeMs} ms`);
      this.#set(undefined, epoch);
    } catch (error) {
      this.#failed('wake', error);
      this.#set({ phase: 'asleep', level }, epoch);
    }
  }

  /** An engine may report that it is awake, and compute nothing. */
  async #requireToken(target: EngineTarget, model: string): Promise<void> {
    const result = await probeForToken(target, model, TOKEN_MS);
    if (result === 'silent') throw new EngineControlError(`no token within ${TOKEN_MS / 1000} s`);
    if (result === 'failed') throw new EngineControlError('it answers requests with a server error');
  }

  #failed(what: string, error: unknown): void {
    const why = `${what}: ${errorText(error)}`.replace(/[^\x20-\x7e]+/g, ' ');
    this.#problem = why.slice(0, MODEL_REASON_MAX);
    this.#options.log(`the engine did not ${why}`);
  }

  #set(sleep: { phase: SleepPhase; level: SleepLevel | undefined } | undefined, epoch: number): void {
    if (epoch !== this.#epoch) return;
    if (sleep?.phase === 'draining' || sleep?.phase === 'waking') this.#problem = undefined;
    this.#sleep = sleep;
    this.#options.changed();
  }

  #then(change: () => Promise<void>): void {
    this.#change = this.#change.then(change);
    neverRejects(this.#change);
  }

  #controlOf(target: EngineTarget): EngineControl {
    return engineControl(target, this.#options.settleMs);
  }
}

function refuse(error: unknown): never {
  throw new DeploymentError('unsupported', errorText(error), { cause: error });
}
