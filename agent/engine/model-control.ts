/**
 * Loads and unloads models of the running engine by order. A sleeping engine keeps its process and frees its GPUs'
 * memory; it gets no request, and its models are published as `asleep`. A LoRA adapter of `--lora-dir` that the engine
 * has not loaded is published as `on-disk`.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { DeploymentError } from '../../shared/deployment/deployment-error.ts';
import type { LoadRequest, UnloadRequest } from '../../shared/deployment/deployment-order.ts';
import { MODEL_REASON_MAX, type ServedModel } from '../../shared/lattice/node-record.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { OrderOutcome } from '../deploy/deployment-decider.ts';
import type { Adapter, AdapterDirectory } from './adapter-directory.ts';
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
/** Maximum adapters with a remembered load or unload. */
const ADAPTERS_REMEMBERED = 256;
/** Maximum models of a registry record. */
const MODELS_MAX = 64;

interface ModelControlOptions {
  engine(): Pick<Engine, 'health' | 'target' | 'lookSoon'> | undefined;
  /** The adapters that the engine may load; undefined: none. */
  adapters?: Pick<AdapterDirectory, 'find' | 'models'> | undefined;
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
  /** Why the last sleep or wake failed. */
  #problem: string | undefined;
  /** The last load or unload of each adapter, by name. Bounded by ADAPTERS_REMEMBERED. */
  readonly #adapters = new Map<string, { loadMs?: number; reason?: string; unloading?: true }>();
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
    const listed = models.map((model): ServedModel => {
      const adapter = this.#adapters.get(model.id);
      if (adapter?.unloading) return { ...model, state: 'on-disk' };
      const failed = adapter?.reason === undefined ? reason : { reason: adapter.reason };
      if (this.#sleep === undefined || model.state !== 'ready') return { ...model, ...failed };
      return { ...model, state: 'asleep', ...wake, ...reason };
    });
    // Only an engine that serves can load an adapter.
    const serves = models.some(({ state }) => state === 'ready');
    const known = serves ? (this.#options.adapters?.models(models) ?? []) : [];
    return [...listed, ...known.slice(0, MODELS_MAX - listed.length).map((model) => this.#describeAdapter(model))];
  }

  #describeAdapter(model: ServedModel): ServedModel {
    const { loadMs, reason } = this.#adapters.get(model.id) ?? {};
    return {
      ...model,
      ...(loadMs === undefined ? {} : { load_ms: loadMs }),
      ...(reason === undefined ? {} : { reason }),
    };
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

  /** Wakes the engine if it sleeps, and loads the model if it is an adapter. @throws DeploymentError */
  load({ model }: LoadRequest): OrderOutcome {
    const adapter = this.#unloadedAdapter(model);
    if (adapter === undefined) this.#requireModel(model);
    if (this.#sleep === undefined && adapter === undefined) return { answer: { kind: 'model', model, state: 'ready' } };
    const act = () => {
      if (this.#sleep?.phase === 'draining') this.#drain.abort();
      if (this.#sleep !== undefined) this.#then(() => this.#wake());
      if (adapter !== undefined) this.#then(() => this.#loadAdapter(adapter));
    };
    return { answer: { kind: 'model', model, state: 'loading' }, act };
  }

  /** An adapter of the directory that the answering engine has not loaded. */
  #unloadedAdapter(model: string): Adapter | undefined {
    const { adapters, engine } = this.#options;
    const { answering = false, models = [] } = engine()?.health ?? {};
    const isListed = models.some(({ id }) => id === model) && !this.#adapters.get(model)?.unloading;
    return answering && !isListed ? adapters?.find(model, models) : undefined;
  }

  async #loadAdapter(adapter: Adapter): Promise<void> {
    const { now, log, engine } = this.#options;
    const target = engine()?.target;
    if (target === undefined || this.#sleep !== undefined || this.#unloadedAdapter(adapter.name) === undefined) return;
    const since = now();
    try {
      await this.#controlOf(target).loadAdapter(adapter, AbortSignal.timeout(this.#options.callMs ?? CALL_MS));
      const loadMs = Math.round(now() - since);
      log(`adapter ${adapter.name} is loaded after ${loadMs} ms`);
      this.#rememberAdapter(adapter.name, { loadMs });
    } catch (error) {
      this.#rememberAdapter(adapter.name, { reason: this.#logged('load', error, `adapter ${adapter.name}: `) });
    }
    engine()?.lookSoon();
  }

  async #unloadAdapter(name: string): Promise<void> {
    const { log, engine } = this.#options;
    const target = engine()?.target;
    const { loadMs } = this.#adapters.get(name) ?? {};
    const known = loadMs === undefined ? {} : { loadMs };
    if (target === undefined) return;
    // Requests that run continue: vLLM keeps an adapter until they end, and SGLang waits for them.
    this.#rememberAdapter(name, { ...known, unloading: true });
    try {
      await this.#controlOf(target).unloadAdapter(name, AbortSignal.timeout(this.#options.callMs ?? CALL_MS));
      log(`adapter ${name} is unloaded`);
      this.#rememberAdapter(name, known);
    } catch (error) {
      this.#rememberAdapter(name, { ...known, reason: this.#logged('unload', error, `adapter ${name}: `) });
    }
    engine()?.lookSoon();
  }

  #rememberAdapter(name: string, state: { loadMs?: number; reason?: string; unloading?: true }): void {
    this.#adapters.delete(name);
    this.#adapters.set(name, state);
    const [oldest] = this.#adapters.keys();
    if (this.#adapters.size > ADAPTERS_REMEMBERED && oldest !== undefined) this.#adapters.delete(oldest);
    this.#options.changed();
  }

  /** Puts the engine to sleep when its running requests have finished. @throws DeploymentError, or rejects with it */
  async unload({ model, sleep: level, drain_ms: drainMs }: UnloadRequest): Promise<OrderOutcome> {
    const target = this.#requireModel(model);
    if (level === undefined && this.#isAdapter(model)) {
      const act = () => this.#then(() => this.#unloadAdapter(model));
      return { answer: { kind: 'model', model, state: 'on-disk' }, act };
    }
    if (level === undefined)
      throw new DeploymentError('unsupported', `${model} is not an adapter: only sleep unloads it from this engine`);
    if (target.prefills !== undefined)
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

  #isAdapter(model: string): boolean {
    return (
      this.#options.engine()?.health.models.some(({ id, parent }) => id === model && parent !== undefined) === true
    );
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
    this.#problem = this.#logged(what, error);
  }

  /** Logs why the engine did not do something, and returns it as it is published. */
  #logged(what: string, error: unknown, subject = ''): string {
    const why = `${what}: ${errorText(error)}`.replace(/[^\x20-\x7e]+/g, ' ');
    this.#options.log(`${subject}the engine did not ${why}`);
    return why.slice(0, MODEL_REASON_MAX);
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
