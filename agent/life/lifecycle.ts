/**
 * The life of one agent: JOIN as soon as a gateway can be reached, SERVING while the engine answers, DOWN when the
 * engine ends or the agent begins to leave, LEFT at the end. In every case the engine's processes end with the agent.
 */

import { hostname } from 'node:os';
import type { Writable } from 'node:stream';
import { UsageError } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { formatDuration } from '../config/duration.ts';
import type { StartConfig } from '../config/start-config.ts';
import { Orders } from '../deploy/orders.ts';
import type { Templates } from '../deploy/templates.ts';
import { isOccupied } from '../engine/engine.ts';
import { LoadMeter } from '../engine/load.ts';
import { AGENT_VERSION } from '../host/agent-version.ts';
import { ControlServer } from '../host/control-server.ts';
import { nodeCrypto } from '../host/crypto.ts';
import { GpuUseReader } from '../host/gpu-use.ts';
import { requireInstalled } from '../host/installed-program.ts';
import { type Hardware, inventory } from '../host/inventory.ts';
import { LastWill } from '../host/last-will.ts';
import { redactor } from '../host/redact.ts';
import { type RunTool, toolRunner } from '../host/run-tool.ts';
import { removeStale, StateDir } from '../host/state-dir.ts';
import type { MetricsServer } from '../observe/server.ts';
import { NodeSeals } from '../seal/node-seals.ts';
import { lastWillOf } from '../tunnel/last-will.ts';
import { openBatchRunner } from './batches.ts';
import { controlHandlers } from './control-handlers.ts';
import { Deferred } from './deferred.ts';
import { acceptDeployments, type DeployedEngine } from './deployed.ts';
import { closeAll, endLife, type LifeEnding } from './ending.ts';
import { EngineStart } from './engine-start.ts';
import { type FaultSource, ProcessFaults } from './faults.ts';
import { HangRestart } from './hang-restart.ts';
import { JobWatch } from './job-watch.ts';
import { MeshMembership } from './mesh-membership.ts';
import { openMetrics } from './metrics-port.ts';
import { RemoteLogs } from './remote-logs.ts';
import { openRequestService } from './request-service.ts';
import { SelfReport } from './self-report.ts';
import type { JoinContext, JoinOptions } from './session/join.ts';
import { newSessions } from './session/new-sessions.ts';
import type { Session } from './session/session.ts';
import { SessionHealth } from './session/session-health.ts';
import { Shutdown, type ShutdownParts } from './shutdown.ts';
import { SignalReader, type SignalSource, type TerminationSignal } from './signals.ts';

interface LifecycleOptions extends JoinOptions {
  config: StartConfig;
  signals: SignalSource;
  faults: FaultSource;
  stdout: Writable;
  stderr: Writable;
  /** Default 30 s. */
  engineGoneMs?: number;
  /**
   * Command that runs `deliverLastWill` in a separate process; absent: gateways are not informed if this process is
   * killed.
   */
  willCommand?: readonly string[];
}

/** Rank 0 registers the hardware of all ranks. */
const NO_HARDWARE: Hardware = { gpus: [], cpus: 0, memory_mib: 0 };

export class Lifecycle {
  readonly #options: LifecycleOptions;
  readonly #gpuUse: GpuUseReader;
  readonly #job: JobWatch;
  readonly #network: MeshMembership;
  readonly #host: string;
  readonly #run: RunTool;
  readonly #report: SelfReport;
  readonly #ending = new Deferred<LifeEnding>();
  readonly #parts: ShutdownParts = {};
  readonly #logs: RemoteLogs;
  readonly #shutdown: Shutdown;
  readonly #health: SessionHealth;
  readonly #load: LoadMeter;
  readonly #seals: NodeSeals;
  readonly #hangs: HangRestart;
  readonly #engineStart: EngineStart;
  #lastWill: LastWill | undefined;
  #deployed: DeployedEngine | undefined;
  #state: StateDir | undefined;
  #signalled = false;
  /** True only if it drained because of an order to restart: the caller then runs the version that is installed now. */
  restarts = false;

  constructor(options: LifecycleOptions) {
    const { config, env, willCommand } = options;
    const log = (line: string) => {
      this.#logs.line(line);
      options.log(line);
    };
    this.#options = { ...options, log };
    this.#logs = new RemoteLogs({
      engine: () => this.#parts.engine,
      allowed: config.remoteLogs,
      sealed: () => this.#seals.opener.used,
      redact: redactor([config.token, config.engine?.key], env),
      directory: config.logDirectory,
      log,
    });
    this.#run = toolRunner(env);
    this.#gpuUse = new GpuUseReader(this.#run, env, () => performance.now());
    if (willCommand !== undefined) this.#lastWill = new LastWill(willCommand, env, log);
    this.#load = new LoadMeter(() => this.#engineStart.target, config.limits);
    this.#load.onLost(() => this.#parts.engine?.lookSoon());
    this.#seals = new NodeSeals(() => Date.now(), config.delegate, config.evidence, log);
    this.#job = new JobWatch({
      config,
      env,
      run: this.#run,
      onChange: () => this.#parts.sessions?.change(this.#jobRecord),
      onDue: (leftMs) => {
        const why = `the job ends in ${formatDuration(leftMs)}`;
        this.#ending.settle({ kind: 'drain', cause: 'job-end', why });
      },
      log,
    });
    this.#host = this.#job.node ?? hostname().slice(0, 255);
    this.#network = new MeshMembership({ config, env, host: this.#host, log });
    this.#shutdown = new Shutdown(this.#parts, this.#logs, log);
    this.#health = new SessionHealth({
      config,
      parts: this.#parts,
      ending: this.#ending,
      deployed: () => this.#deployed,
      ...(options.engineGoneMs === undefined ? {} : { goneMs: options.engineGoneMs }),
      log,
    });
    this.#engineStart = new EngineStart({
      ...this.#options,
      parts: this.#parts,
      network: this.#network,
      ending: this.#ending,
      onHealth: (health) => this.#health.see(health),
      onStarted: (engine) => this.#hangs.watch(engine),
    });
    this.#hangs = new HangRestart({
      config,
      parts: this.#parts,
      load: this.#load,
      ending: this.#ending,
      start: () => this.#engineStart.start(),
      giveUp: (sign) => this.#ending.settle({ kind: 'fatal', sign }),
      log,
    });
    this.#report = new SelfReport({
      parts: this.#parts,
      job: this.#job,
      network: this.#network,
      load: () => this.#engineStart.target && this.#load.current,
      name: () => this.#state?.name ?? '',
    });
    // If an order could drain another rank, its engine would end under the requests of rank 0.
    if (!this.#registers) return;
    this.#parts.orders = new Orders({
      deployments: () => this.#parts.deployments,
      drain: (why) => this.#ending.settle({ kind: 'drain', cause: 'request', why }),
      restart: async (version) => {
        await requireInstalled(version, options.env);
        const why = `an order of its gateway to come back as ${version}`;
        const act = () => this.#ending.settle({ kind: 'drain', cause: 'request', why, restart: true });
        return { from: AGENT_VERSION, act };
      },
      inspect: () => this.#logs.inspect(this.#gpuUse),
      inFlight: () => this.#shutdown.inFlight,
      crypto: nodeCrypto,
      now: () => Date.now(),
      revoked: (issuer, key) => this.#network.replica.revocations(issuer).some(({ keyName }) => keyName === key),
      log,
    });
  }

  /** Resolves with the exit code. Throws UsageError if nothing could be started. */
  async run(): Promise<number> {
    const { config, env, log, signals, faults, stderr } = this.#options;
    const reader = new SignalReader(() => performance.now());
    const unsubscribe = signals((signal) => this.#onSignal(signal, reader));
    const told = new ProcessFaults(log);
    const ignore = faults((error) => this.#ending.settle({ kind: 'fault', what: told.tell(error) }));
    let control: ControlServer | undefined;
    let metrics: MetricsServer | undefined;
    try {
      if (config.command && config.engine && (await isOccupied(config.engine))) {
        throw new UsageError(`something answers at ${config.engine.origin} already: give the engine another --port`);
      }
      await removeStale(env, Date.now());
      const state = asUsage(() => new StateDir(env));
      this.#state = state;
      control = new ControlServer(
        state.path,
        controlHandlers(this.#parts, this.#report, () =>
          this.#ending.settle({ kind: 'drain', cause: 'request', why: 'otela-agent drain' }),
        ),
      );
      await control.open();
      metrics = await openMetrics(config.metrics, { state, page: () => this.#report.page(), log });
      if (this.#registers) {
        const around = {
          network: this.#network,
          engine: () => this.#engineStart.target,
          load: this.#load,
          seals: this.#seals.opener,
        };
        this.#parts.requests = await openRequestService({ config, ...around, state, log });
      }
      await this.#engineStart.openWeights();
      log(`state in ${state.path}${this.#job.name ? `, ${this.#job.name}` : ''}`);
      if (config.templates !== undefined) this.#awaitDeployments(config.templates);
      else if (config.weights?.environment === undefined && (config.weights?.sources.length ?? 0) === 0)
        this.#engineStart.start();
      else neverRejects(this.#engineStart.startWithWeights());
      const [ending] = await Promise.all([this.#ending.promise, this.#join()]);
      const code = await endLife(ending, {
        job: this.#job,
        shutdown: this.#shutdown,
        registers: this.#registers,
        stderr,
        signalled: () => this.#signalled,
      });
      this.restarts = ending.kind === 'drain' && ending.restart === true && !this.#signalled;
      return code;
    } finally {
      await closeAll(log, [
        () => this.#health.close(),
        () => this.#job.close(),
        () => this.#network.close(),
        () => this.#hangs.close(),
        () => this.#parts.requests?.close(),
        () => this.#parts.batches?.close(),
        () => this.#parts.weights?.close(),
        () => this.#load.close(),
        () => this.#parts.engine?.stop(0, Promise.resolve()),
        () => control?.close(),
        () => metrics?.close(),
        () => this.#state?.remove(),
        // The last will is delivered after this process has ended.
        () => (this.#shutdown.untold ? undefined : this.#lastWill?.dismiss()),
        unsubscribe,
        ignore,
      ]);
    }
  }

  get #registers(): boolean {
    return this.#options.config.span.role === 'register';
  }

  /** The autoscaler takes a node of its job for the serving node, so the other ranks do not publish the job. */
  get #jobRecord() {
    return this.#registers ? this.#job.record() : {};
  }

  /** No engine yet: an order of the network chooses one of the operator's templates. */
  #awaitDeployments(templates: Templates): void {
    this.#deployed = acceptDeployments({
      ...this.#options,
      templates,
      parts: this.#parts,
      onHealth: (health) => this.#health.see(health),
      ending: this.#ending,
      graceMs: () => this.#job.plan('signal').graceMs,
    });
  }

  /** Reads the host and joins; stops if the end begins meanwhile. */
  async #join(): Promise<void> {
    const { config, env, log } = this.#options;
    if (config.span.reason) log(config.span.reason);
    this.#job.open();
    if (!this.#registers) {
      log('this agent supervises its part of the engine; the agent of rank 0 registers it');
      if (this.#parts.weights === undefined) return;
    }
    const reading = this.#registers ? inventory(env, this.#run, log) : Promise.resolve(NO_HARDWARE);
    await Promise.race([reading, this.#ending.promise]);
    if (this.#ending.settled) return;
    this.#parts.sessions = newSessions({
      joinOptions: this.#options,
      around: this.#joinContext,
      hardware: await reading,
      host: this.#host,
      registers: this.#registers,
      jobRecord: this.#jobRecord,
      ending: this.#ending,
      onCurrent: (session) => this.#onSession(session),
    });
    if (this.#parts.engine) this.#health.see(this.#parts.engine.health);
    if (this.#registers)
      this.#parts.batches = openBatchRunner({
        config,
        parts: this.#parts,
        network: this.#network,
        env,
        engine: () => this.#engineStart.target,
        command: () => this.#deployed?.command ?? config.command,
        load: this.#load,
        log,
      });
    await Promise.race([this.#parts.sessions.open(), this.#ending.promise]);
  }

  get #joinContext(): JoinContext {
    return {
      network: this.#network,
      job: this.#job,
      parts: this.#parts,
      engine: () => this.#engineStart.target,
      load: this.#load,
      seals: this.#seals,
    };
  }

  #onSession(session: Session): void {
    this.#nameState(session.id);
    this.#options.log(`session ${session.id}, state in ${this.#state?.path}`);
    const { proxy } = this.#network;
    const gateways = this.#network.gateways.map(({ url }) => url);
    this.#lastWill?.set(lastWillOf({ gateways, proxy, ticket: session.ticket, record: session.will() }));
  }

  #nameState(session: string): void {
    try {
      this.#state?.rename(session);
    } catch (error) {
      // A cleanup of that directory also removed the socket; the engine continues to serve.
      this.#options.log(`no state directory any more: ${errorText(error)}`);
    }
  }

  #onSignal(signal: TerminationSignal, reader: SignalReader): void {
    this.#signalled = true;
    const { kind, cause } = reader.read(signal);
    if (kind === 'force') {
      this.#options.log(`${signal} again: ending at once`);
      this.#shutdown.force();
    } else if (kind === 'drain' && this.#ending.settled) {
      // The agent already drains without haste. From now on a SIGKILL is near, unless the batch system reports
      // otherwise.
      neverRejects(
        this.#shutdown.shorten(this.#job.plan(cause), signal === 'SIGTERM' ? this.#job.warning() : undefined),
      );
    } else if (kind === 'drain') {
      this.#ending.settle({ kind: 'drain', cause, why: signal });
    }
  }
}

function asUsage<T>(act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw new UsageError(errorText(error));
  }
}
