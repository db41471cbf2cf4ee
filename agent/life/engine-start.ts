/** Starts the engine of one agent by its command: immediately, or when everything that it loads is on local disk. */

import type { Writable } from 'node:stream';
import { UsageError } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { Env } from '../config/setting.ts';
import type { StartConfig } from '../config/start-config.ts';
import { Engine } from '../engine/engine.ts';
import type { EngineTarget } from '../engine/engine-address.ts';
import type { EngineHealth } from '../engine/engine-health.ts';
import type { AgentParts } from './agent-parts.ts';
import { AgentWeights, type PreparedEngine } from './agent-weights.ts';
import type { AgentEnding } from './ending/agent-ending.ts';
import type { MeshMembership } from './mesh-membership.ts';

interface EngineStartOptions {
  config: Pick<StartConfig, 'command' | 'engine' | 'fatal' | 'weights'>;
  env: Env;
  stdout: Writable;
  stderr: Writable;
  parts: AgentParts;
  network: MeshMembership;
  life: Pick<AgentEnding, 'ending' | 'end'>;
  onHealth(health: EngineHealth): void;
  /** Called each time the engine starts. */
  onStarted(engine: Engine): void;
  log(line: string): void;
}

export class EngineStart {
  readonly #options: EngineStartOptions;
  /** The command and environment that use weights on local disk; undefined: as configured. */
  #prepared: PreparedEngine | undefined;

  constructor(options: EngineStartOptions) {
    this.#options = options;
  }

  /** The engine's address; undefined while no engine answers, and while it sleeps. */
  get target(): EngineTarget | undefined {
    const { engine, models } = this.#options.parts;
    return engine?.health.answering && models?.isAsleep !== true ? engine.target : undefined;
  }

  /** Starts the engine. Called again for each restart of an engine that hung. */
  start(): void {
    const { config, stdout, stderr, parts, life, onHealth, onStarted, log } = this.#options;
    const { command, env } = this.#prepared ?? { command: config.command, env: this.#options.env };
    const engine = new Engine({
      command,
      target: config.engine,
      env,
      stdout,
      stderr,
      log,
      onLine: (line) => {
        if (life.ending.settled) return;
        const sign = config.fatal.find(line);
        if (sign !== undefined) life.end({ kind: 'fatal', sign });
      },
      onHealth,
      now: () => performance.now(),
    });
    parts.engine = engine;
    onStarted(engine);
    neverRejects(
      engine.exited.then((exit) => {
        // An engine that was ended because it hung is no longer `parts.engine`. The agent then starts the next engine
        // and does not end.
        if (parts.engine === engine) life.end({ kind: 'engine', exit });
      }),
    );
  }

  /**
   * Opens the store of weights, if a directory for it is configured. @throws UsageError if the directory cannot be used
   */
  async openWeights(): Promise<void> {
    const { config, env, parts, network, log } = this.#options;
    if (config.weights === undefined) return;
    const weights = new AgentWeights({
      config: config.weights,
      env,
      issuerName: (issuer) => network.issuerName(issuer),
      onRecord: (kept) => parts.sessions?.change({ weights: kept }),
      log,
    });
    parts.weights = weights;
    network.serveWeights((proven) => weights.accept(proven));
    await weights.open().catch((error: unknown) => {
      throw new UsageError(`--weights-dir: ${errorText(error)}`);
    });
  }

  /**
   * Starts the engine when its weights and its environment are on local disk. Ends the agent if there is no environment
   * to run in.
   */
  async startWithWeights(): Promise<void> {
    const { config, env, parts, life } = this.#options;
    try {
      this.#prepared = await parts.weights?.prepare(config.command, env);
    } catch (error) {
      const message = errorText(error);
      return life.end({ kind: 'engine', exit: { kind: 'error', message } });
    }
    if (!life.ending.settled) this.start();
  }
}
