/** Runs a factory from start to end: one lease, one exchange with the gateway, and rounds. */

import { statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { readFactoryConfig } from '../config/read-config.ts';
import type { FactoryConfig } from '../config/schema.ts';
import { type PlacedModel, placedModels } from '../decisions/factory-world.ts';
import type { Memory } from '../decisions/persisted-state.ts';
import { type GatewaySource, mergeDemand } from '../demand/demand-source.ts';
import { PlanFile } from '../demand/plan-file.ts';
import { errorLine } from '../factory-error.ts';
import type { Launcher } from '../launchers/launcher.ts';
import { makeLauncher } from '../launchers/make-launcher.ts';
import { DecisionHistory } from './decision-history.ts';
import { buildDayPoint, buildFactoryReport } from './factory-report.ts';
import { HEARTBEAT_MS, Lease } from './lease.ts';
import { type RoundResult, runRound } from './run-round.ts';
import { StateFiles } from './state-files.ts';

/**
 * Rounds that may follow each other immediately after a quiet time. A cold start needs several: a request arrives, a
 * job starts, a node joins, the node serves. Later rounds are spaced, because each queries every scheduler, and
 * administrators ban users that run squeue in a loop.
 */
const BURST = 5;
/** After the burst, one round per this time, however often the gateway reports changes. */
const REFILL_MS = 5_000;
/** Changes within this time are handled in the same round. */
const ROUND_MIN_MS = 300;

export class RoundPace {
  #remaining = BURST;
  #countedAt: number;

  constructor(now: number) {
    this.#countedAt = now;
  }

  /**
   * Call it after each round. Returns the minimum milliseconds before the next round.
   * @param every milliseconds between rounds if nothing changes; changes never make rounds rarer
   */
  rest(every: number, now: number): number {
    const refillMs = Math.min(REFILL_MS, every);
    // If the clock was set back, no time has passed.
    const gained = Math.max(0, now - this.#countedAt) / refillMs;
    this.#remaining = Math.min(BURST, this.#remaining + gained) - 1;
    this.#countedAt = now;
    return Math.max(ROUND_MIN_MS, -this.#remaining * refillMs);
  }
}

const CLEANUP_MS = 3_600_000;
/** Keys of the file that a running factory does not change. It does read the files that they name again. */
const FIXED_KEYS = ['factory', 'state', 'gateway', 'token_file', 'ca_file'] as const;

interface FactoryOptions {
  configPath: string;
  config: FactoryConfig;
  log(line: string): void;
  gateway: GatewaySource;
  launcherFor?: typeof makeLauncher;
  now?(): number;
}

export class Factory {
  readonly #options: FactoryOptions;
  readonly #files: StateFiles;
  readonly #history: DecisionHistory;
  readonly #now: () => number;
  readonly #end = new AbortController();
  #config: FactoryConfig;
  #models: PlacedModel[];
  #launchers: Map<string, Launcher>;
  #plan: PlanFile | undefined;
  #memory: Memory;
  #configStamp = '';
  #wake = Promise.withResolvers<void>();
  #cleanedAt = 0;
  #checkedAt: number | undefined;

  constructor(options: FactoryOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
    this.#config = options.config;
    this.#files = new StateFiles(options.config.state);
    this.#history = new DecisionHistory((line) => options.log(line));
    this.#models = placedModels(options.config);
    this.#launchers = this.#makeLaunchers(options.config);
    this.#plan = this.#planOf(options.config);
    this.#memory = this.#files.readMemory(this.#now());
  }

  /** Resolves when `stop` was called, or when another factory took the lease. Jobs continue to run. */
  async run(): Promise<'stopped' | 'replaced'> {
    this.#files.open();
    const lease = new Lease(this.#files.directory);
    const waiting = ({ host, pid }: { host: string; pid: number }) =>
      this.#options.log(`waits: the factory ${this.#config.factory} runs on ${host} (pid ${pid})`);
    if (!(await lease.acquire(waiting, sleep, this.#end.signal, this.#now))) return 'stopped';
    // The previous factory wrote the memory while this one waited for the lease.
    this.#memory = this.#files.readMemory(this.#now());
    this.#history.restore(this.#files.read('status.json'));
    this.#options.log(
      `${this.#config.factory}: ${this.#models.length} models, ${this.#config.clusters.length} clusters`,
    );
    const pace = new RoundPace(this.#now());
    const beat = setInterval(() => this.#beat(lease), HEARTBEAT_MS);
    this.#options.gateway.open(() => this.#wake.resolve());
    try {
      while (!this.#end.signal.aborted) {
        if (!lease.held()) return 'replaced';
        await this.#round();
        const { every } = this.#config.guest;
        const rest = pace.rest(every, this.#now());
        await sleep(rest, this.#end.signal);
        await Promise.race([this.#wake.promise, sleep(Math.max(0, every - rest), this.#end.signal)]);
        this.#wake = Promise.withResolvers<void>();
      }
      return 'stopped';
    } finally {
      clearInterval(beat);
      await this.#options.gateway.close();
      lease.release();
    }
  }

  /**
   * Returns the actions that a round would take, as sentences. Nothing is written, submitted, cancelled or reported.
   */
  async rehearse(): Promise<string[]> {
    const lines: string[] = [];
    const memory = structuredClone(this.#memory);
    const { actions, wanted, held, world } = await runRound({
      ...this.#parts(),
      memory,
      dry: true,
      note: ({ model, text }) => void lines.push(`${model === undefined ? '' : `${model}: `}${text}`),
    });
    for (const [id, view] of world.clusters) if (!view.reachable) lines.push(`${id} does not answer: ${view.reason}`);
    for (const { model } of this.#models) {
      const want = wanted.get(model.id);
      lines.push(`${model.id}: wants ${want?.jobs ?? 0}: ${want?.why ?? ''}`);
      const because = held.get(model.id);
      if (because !== undefined) lines.push(`${model.id}: held back: ${because}`);
    }
    for (const action of actions)
      lines.push(
        action.kind === 'submit'
          ? `${action.model}: would submit ${action.count} to ${action.place.cluster.id}/${action.place.pool.name}`
          : `would ${action.kind} ${action.kind === 'drain' ? action.job : action.jobs.join(', ')} on ${action.cluster}: ${action.why}`,
      );
    return lines;
  }

  stop(): void {
    this.#end.abort();
  }

  async #round(): Promise<void> {
    this.#reread();
    try {
      const result = await runRound(this.#parts());
      this.#checkedAt = result.at;
      this.#report(result);
    } catch (error) {
      // The usual cause is a full disk. Nothing was sent to a scheduler that is not stored.
      this.#options.log(`this round failed: ${errorLine(error)}`);
    }
    const now = this.#now();
    if (now - this.#cleanedAt < CLEANUP_MS) return;
    this.#cleanedAt = now;
    try {
      this.#files.tidy(now);
    } catch (error) {
      // A shared file system may fail for a moment. The next hour tries again.
      this.#options.log(`old logs cannot be deleted: ${errorLine(error)}`);
    }
  }

  #parts() {
    return {
      config: this.#config,
      models: this.#models,
      launchers: this.#launchers,
      memory: this.#memory,
      before: this.#checkedAt,
      heard: (now: number) =>
        mergeDemand(
          this.#options.gateway.latest(now),
          [this.#plan].flatMap((one) => one?.latest(now) ?? []),
        ),
      now: this.#now,
      remember: (memory: Memory) => this.#files.write('memory.json', memory),
      logTail: (cluster: string, id: string) => this.#files.logTail(cluster, id),
      logPath: (cluster: string) => join(this.#files.logs, `${cluster}-%j.log`),
      note: (note: { model?: string; text: string }) => this.#history.note(note, this.#now()),
    };
  }

  #report(result: RoundResult): void {
    const now = this.#now();
    const fresh = this.#history.point(buildDayPoint({ result, memory: this.#memory, now }));
    const report = buildFactoryReport({
      result,
      memory: this.#memory,
      launchers: this.#launchers,
      decisions: this.#history.decisions,
      now,
    });
    const fault = this.#options.gateway.fault();
    const sends = fresh || fault !== undefined;
    this.#options.gateway.report(sends ? { ...report, day: this.#history.day } : report);
    this.#files.write('status.json', {
      at: new Date(now).toISOString(),
      pid: process.pid,
      report,
      day: this.#history.day,
      decisions: this.#history.decisions,
      heard: { demand: [...result.world.demand.values()], nodes: result.world.nodes },
      wanted: Object.fromEntries(result.wanted),
      held: Object.fromEntries(result.held),
      back_offs: this.#memory.back_offs,
      ...(fault === undefined ? {} : { gateway: fault }),
    });
  }

  #beat(lease: Lease): void {
    try {
      if (!lease.beat()) this.#wake.resolve();
    } catch (error) {
      this.#options.log(`the lease cannot be written: ${errorLine(error)}`);
    }
  }

  /**
   * Reads the configuration file again. If it became invalid, the factory logs the problem and keeps the old
   * configuration.
   */
  #reread(): void {
    const before = this.#configStamp;
    if (this.#stamp() === before) return;
    try {
      const config = readFactoryConfig(this.#options.configPath);
      if (config.revision === this.#config.revision) return;
      const fixed = FIXED_KEYS.filter((key) => config[key] !== this.#config[key]);
      if (fixed.length > 0) throw new Error(`${fixed.join(', ')}: a change requires a restart`);
      const launchers = this.#makeLaunchers(config);
      this.#config = config;
      this.#launchers = launchers;
      this.#models = placedModels(config);
      this.#plan = this.#planOf(config);
      this.#history.note({ text: `read its file again: revision ${config.revision}` }, this.#now());
    } catch (error) {
      this.#history.note({ text: `continues with the earlier file: ${errorLine(error)}` }, this.#now());
    }
  }

  #stamp(): string {
    try {
      const { mtimeMs, size, ino } = statSync(this.#options.configPath);
      this.#configStamp = `${mtimeMs} ${size} ${ino}`;
    } catch {
      // An editor may be replacing the file; the next round reads it again.
    }
    return this.#configStamp;
  }

  #planOf({ plan, models }: FactoryConfig): PlanFile | undefined {
    if (plan === undefined) return undefined;
    const note = (text: string) => this.#history.note({ text }, this.#now());
    return new PlanFile({ path: plan.file, maxAge: plan.max_age, models: models.map(({ id }) => id), note });
  }

  #makeLaunchers(config: FactoryConfig): Map<string, Launcher> {
    const make = this.#options.launcherFor ?? makeLauncher;
    return new Map(config.clusters.map((cluster) => [cluster.id, make(cluster, config)]));
  }
}

/** Resolves after `ms`, or when `signal` aborts. */
const sleep = (ms: number, signal: AbortSignal): Promise<void> => delay(ms, undefined, { signal }).catch(() => {});
