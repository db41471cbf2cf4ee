/**
 * The engine of a deployment. The engine starts and ends with a session; the agent stays and waits for the next
 * deployment.
 */

import { createServer } from 'node:net';
import type { Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { DeploymentError } from '../../shared/deployment/deployment-error.ts';
import type { DeploymentState } from '../../shared/deployment/order-reply.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { formatDuration } from '../config/duration.ts';
import type { Env } from '../config/setting.ts';
import type { StartConfig } from '../config/start-config.ts';
import { DeploymentDecider, type EngineRunner } from '../deploy/deployment-decider.ts';
import type { EngineLaunch, Templates } from '../deploy/deployment-templates.ts';
import { Engine, isOccupied } from '../engine/engine.ts';
import { parseEngineTarget } from '../engine/engine-address.ts';
import type { EngineHealth } from '../engine/engine-health.ts';
import { describeExit } from '../engine/engine-process.ts';
import type { AgentParts } from './agent-parts.ts';
import type { Deferred } from './settles-within.ts';
import { uploadLogTail } from './upload-log-tail.ts';

interface DeployedEngineOptions {
  parts: AgentParts;
  /** The operator's labels, and the patterns of output lines that mean that the engine is broken. */
  config: Pick<StartConfig, 'labels' | 'fatal'>;
  env: Env;
  stdout: Writable;
  stderr: Writable;
  log(line: string): void;
  onHealth(health: EngineHealth): void;
  /** Settled when the agent begins to end. From then on the shutdown ends the engine. */
  ending: Pick<Deferred<unknown>, 'promise' | 'settled'>;
  /** Milliseconds from SIGTERM to SIGKILL. */
  graceMs(): number;
}

/** Time for responses that were already being sent when the engine ended. */
const LAST_ANSWERS_MS = 2000;
/** Interval of checks whether other agents' requests have ended. */
const POLL_MS = 100;

export class DeployedEngine implements EngineRunner {
  readonly #options: DeployedEngineOptions;
  /** Undefined if nothing is deployed, or if the deployment is ending. */
  #engine: Engine | undefined;
  #launch: EngineLaunch | undefined;
  /** The deployment whose weights are being copied. */
  #copying: EngineLaunch | undefined;
  #readyTimer: NodeJS.Timeout | undefined;

  constructor(options: DeployedEngineOptions) {
    this.#options = options;
  }

  get #isEnding(): boolean {
    return this.#options.ending.settled;
  }

  /** The command of the running deployment. */
  get command(): readonly string[] | undefined {
    return this.#launch?.argv;
  }

  async port(wanted: number | undefined): Promise<number> {
    const port = wanted ?? (await freePort());
    if (wanted === undefined || !(await isOccupied({ origin: `http://127.0.0.1:${port}`, pathPrefix: '' })))
      return port;
    throw new DeploymentError('cannot_start', `another server already answers on port ${port} of this machine`);
  }

  begin({ id }: DeploymentState, launch: EngineLaunch): void {
    const { parts, log } = this.#options;
    if (this.#isEnding) return;
    neverRejects(parts.sessions?.becomeIdle(`deployment ${id} is starting`, this.#labels()));
    this.#launch = launch;
    if (launch.weights === undefined) this.#start(launch, this.#options.env);
    else neverRejects(this.#copyAndStart(launch, launch.weights));
    this.#readyTimer = setTimeout(
      () => this.#failed(`it served no model within ${formatDuration(launch.readyWithinMs)}`),
      launch.readyWithinMs,
    ).unref();
    log(`deployment ${id} is starting on port ${launch.port}`);
  }

  /**
   * Copies the weights to this node before the engine starts. The source is read only if no node of the cluster has
   * them: a switch of many replicas reads the shared file system once.
   */
  async #copyAndStart(launch: EngineLaunch, source: string): Promise<void> {
    const { parts, env } = this.#options;
    this.#copying = launch;
    const prepared = await parts.weights?.prepare(launch.argv, env, [source]);
    if (this.#copying !== launch || this.#isEnding) {
      // The deployment ended meanwhile. Its successor may use the same weights.
      if (this.#launch?.weights !== source) parts.weights?.release(source);
      return;
    }
    this.#copying = undefined;
    const ready = { ...launch, argv: prepared?.command ?? launch.argv };
    this.#launch = ready;
    this.#start(ready, prepared?.env ?? env);
  }

  #start({ argv, port }: EngineLaunch, env: Env): void {
    const { parts, config, stdout, stderr, log } = this.#options;
    const engine: Engine = new Engine({
      command: argv,
      target: parseEngineTarget({ command: argv, port }),
      env,
      stdout,
      stderr,
      log,
      onLine: (line) => {
        if (this.#engine !== engine) return;
        const sign = config.fatal.find(line);
        if (sign === undefined) return;
        parts.sessions?.current?.giveUp(); // the engine will never answer running requests; other nodes may continue them
        this.#failed(`it is broken: ${sign}`);
      },
      onHealth: (health) => this.#onHealth(engine, health),
      now: () => performance.now(),
    });
    this.#engine = engine;
    parts.engine = engine;
    neverRejects(
      engine.exited.then((exit) => {
        if (this.#engine === engine) this.#failed(describeExit(exit));
      }),
    );
  }

  #onHealth(engine: Engine, health: EngineHealth): void {
    if (this.#engine !== engine) return;
    if (health.everReady) {
      clearTimeout(this.#readyTimer);
      this.#options.parts.deployments?.running();
    }
    this.#options.onHealth(health);
  }

  #failed(why: string): void {
    if (this.#isEnding) return;
    neverRejects(this.#options.parts.deployments?.failed(why, LAST_ANSWERS_MS));
  }

  async end(why: string, drainMs: number): Promise<void> {
    const { parts, ending, graceMs } = this.#options;
    const engine = this.#engine;
    this.#engine = undefined;
    this.#copying = undefined;
    clearTimeout(this.#readyTimer);
    parts.sessions?.current?.change({ state: 'DOWN' });
    if (parts.deployments?.current?.reason !== undefined) await uploadLogTail(parts, parts.engine?.tail(), ending);
    await Promise.all([parts.sessions?.becomeIdle(why, this.#labels(), drainMs), this.#meshRequestsDone(drainMs)]);
    if (this.#isEnding) return;
    await engine?.stop(graceMs(), ending.promise);
    if (parts.engine === engine) delete parts.engine;
    if (engine !== undefined && this.#launch?.weights !== undefined) parts.weights?.release(this.#launch.weights);
    this.#launch = undefined;
  }

  /** Waits for requests that arrived over the mesh. Draining the session waits only for requests of gateways. */
  async #meshRequestsDone(drainMs: number): Promise<void> {
    const { parts } = this.#options;
    const until = performance.now() + drainMs;
    while (!this.#isEnding && (parts.requests?.requests.serving.inFlight ?? 0) > 0 && performance.now() < until)
      await delay(POLL_MS);
  }

  publish(): void {
    this.#options.parts.sessions?.change(this.#labels());
  }

  #labels(): { labels: Record<string, string> } {
    const { config, parts } = this.#options;
    return { labels: { ...config.labels, ...parts.deployments?.labels } };
  }
}

interface AcceptingOptions extends DeployedEngineOptions {
  templates: Templates;
}

/** Lets this agent accept orders to deploy. `parts.deployments` decides about them. */
export function acceptDeployments({ templates, ...options }: AcceptingOptions): DeployedEngine {
  const keeper = new DeployedEngine(options);
  options.parts.deployments = new DeploymentDecider({
    templates,
    keeper,
    now: () => Date.now(),
    log: options.log,
  });
  return keeper;
}

/** A port that is free now. If another process takes it before the engine starts, the engine reports that and ends. */
function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', (cause) => reject(new DeploymentError('cannot_start', 'there is no free port', { cause })));
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() =>
        typeof address === 'object' && address !== null
          ? resolve(address.port)
          : reject(new DeploymentError('cannot_start', 'there is no free port')),
      );
    });
  });
}
