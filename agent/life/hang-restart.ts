/**
 * Ends an engine of this agent that hangs, and starts it again by its command. First uploads the engine's last output
 * to the gateways.
 */

import { setTimeout as delay } from 'node:timers/promises';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { formatDuration } from '../config/duration.ts';
import type { StartConfig } from '../config/start-config.ts';
import { type Engine, isOccupied } from '../engine/engine.ts';
import type { LoadMeter } from '../engine/engine-load.ts';
import { HangCheck } from '../engine/hang-check.ts';
import { probeForToken } from '../engine/token-probe.ts';
import type { AgentParts } from './agent-parts.ts';
import type { Deferred } from './settles-within.ts';
import { uploadLogTail } from './upload-log-tail.ts';

const POLL_MS = 1_000;
/** Maximum number of restarts within RESTARTS_WITHIN_MS. If the engine hangs again, `giveUp` ends the node. */
const RESTARTS_MAX = 3;
const RESTARTS_WITHIN_MS = 3_600_000;
/** Milliseconds from SIGTERM to SIGKILL. Short, because an engine that hangs rarely reacts to SIGTERM. */
const GRACE_MS = 2_000;
/** Maximum wait for the port of a killed engine, which is normally free a moment later. */
const PORT_WAIT_MS = 10_000;

interface HangRestartOptions {
  config: Pick<StartConfig, 'command' | 'probeAfterMs' | 'probeTimeoutMs'>;
  parts: AgentParts;
  load: Pick<LoadMeter, 'waiting' | 'heardAt' | 'counts' | 'look'>;
  /** Settled when the agent begins to end. */
  ending: Pick<Deferred<unknown>, 'promise' | 'settled'>;
  /** Starts the engine again. */
  start(): void;
  /** Called if the engine hung too often. */
  giveUp(why: string): void;
  log(line: string): void;
}

export class HangRestart {
  readonly #options: HangRestartOptions;
  #check: HangCheck | undefined;
  #timer: NodeJS.Timeout | undefined;
  #restarts: number[] = [];
  #restarting: Promise<void> | undefined;

  constructor(options: HangRestartOptions) {
    this.#options = options;
  }

  /**
   * Watches an engine that has just started. An engine that this agent did not start is left to its operators and to
   * the gateways.
   */
  watch(engine: Engine): void {
    const { config, load } = this.#options;
    const { probeAfterMs: quietMs, probeTimeoutMs: probeMs } = config;
    if (config.command === undefined || engine.target === undefined || quietMs === 0) return;
    clearInterval(this.#timer);
    this.#check?.close();
    const check = new HangCheck({
      quietMs,
      probeMs,
      now: () => performance.now(),
      waiting: () => (engine.health.answering ? load.waiting : 0),
      heardAt: () => load.heardAt,
      counts: () => load.counts,
      probe: async () => {
        const model = engine.health.models.find(({ state }) => state === 'ready')?.id;
        const { target } = engine;
        return target === undefined || model === undefined ? 'unknown' : probeForToken(target, model, probeMs);
      },
      onHang: (silentMs) => {
        this.#restarting = this.#restart(engine, `it has sent nothing for ${formatDuration(silentMs)}`);
      },
    });
    this.#check = check;
    this.#timer = setInterval(() => {
      if (load.waiting > 0) load.look();
      check.tick();
    }, POLL_MS).unref();
  }

  async #restart(engine: Engine, why: string): Promise<void> {
    const { parts, ending, start, giveUp, log } = this.#options;
    clearInterval(this.#timer);
    if (ending.settled) return;
    const now = performance.now();
    this.#restarts = this.#restarts.filter((at) => now - at < RESTARTS_WITHIN_MS);
    if (this.#restarts.length >= RESTARTS_MAX) return giveUp(`the engine hangs: ${why}`);
    this.#restarts.push(now);
    log(`the engine hangs: ${why}; restarting it`);
    parts.sessions?.current?.change({ state: 'DOWN' });
    parts.sessions?.giveUp(); // the engine will never answer running requests; other nodes may continue them
    await uploadLogTail(parts, engine.tail(), ending);
    if (ending.settled) return;
    delete parts.engine; // so that this engine's exit does not end the agent
    neverRejects(parts.sessions?.becomeIdle('its engine hangs'));
    await engine.stop(GRACE_MS, ending.promise);
    await this.#portFree(engine);
    if (!ending.settled) start();
  }

  async #portFree({ target }: Engine): Promise<void> {
    const until = performance.now() + PORT_WAIT_MS;
    while (target !== undefined && performance.now() < until && (await isOccupied(target))) await delay(100);
  }

  /** Waits until an engine that is being ended has ended. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    this.#check?.close();
    await this.#restarting;
  }
}
