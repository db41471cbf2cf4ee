/**
 * The life of one agent: JOIN as soon as a gateway can be reached, SERVING while the engine answers, DOWN when it ends or
 * the agent begins to leave, LEFT when it goes. Whatever happens, the engine's processes do not outlive it.
 */
import { hostname } from 'node:os';
import type { Writable } from 'node:stream';
import { EXIT_DONE, UsageError } from '../../shared/command-line/index.ts';
import { formatDuration } from '../config/duration.ts';
import { EXIT_ENGINE, EXIT_REFUSED, EXIT_SIGNALLED } from '../config/exit.ts';
import type { StartConfig } from '../config/start-config.ts';
import { Orders } from '../deploy/orders.ts';
import type { Templates } from '../deploy/templates.ts';
import type { EngineTarget } from '../engine/address.ts';
import type { EngineExit } from '../engine/child.ts';
import { Engine, isOccupied } from '../engine/engine.ts';
import { LoadMeter } from '../engine/load.ts';
import { AGENT_VERSION } from '../host/agent-version.ts';
import { ControlServer } from '../host/control-server.ts';
import { nodeCrypto } from '../host/crypto.ts';
import { GpuUseReader } from '../host/gpu-use.ts';
import { type Hardware, hardwareOf, inventory } from '../host/inventory.ts';
import { LastWill } from '../host/last-will.ts';
import { requireInstalled } from '../host/own-program.ts';
import { redactor } from '../host/redact.ts';
import { type RunTool, toolRunner } from '../host/run-tool.ts';
import { removeStale, StateDir } from '../host/state-dir.ts';
import type { MetricsServer } from '../observe/server.ts';
import { NodeSeals } from '../seal/node-seals.ts';
import { willOf } from '../tunnel/last-will.ts';
import type { Refusal } from '../tunnel/types.ts';
import { openBatches } from './batches.ts';
import { acceptDeployments, type DeployedEngine } from './deployed.ts';
import type { DrainCause } from './drain-plan.ts';
import { HangRestart } from './hang-restart.ts';
import { Job } from './job.ts';
import { type JoinContext, type JoinOptions, join } from './join.ts';
import { openMetrics } from './metrics-port.ts';
import { Network } from './network.ts';
import { NodeWeights, type Prepared } from './node-weights.ts';
import { RemoteLogs } from './remote-logs.ts';
import { openRequests } from './requests.ts';
import { SelfReport } from './self-report.ts';
import { SessionHealth } from './session-health.ts';
import { Sessions } from './sessions.ts';
import { type Parts, Shutdown } from './shutdown.ts';
import { type EndSignal, SignalReader, type SignalSource } from './signals.ts';
import { Once } from './wait.ts';

interface LifecycleOptions extends JoinOptions {
  config: StartConfig;
  signals: SignalSource;
  stdout: Writable;
  stderr: Writable;
  /** Default 30 s. */
  engineGoneMs?: number;
  /** Runs `deliverLastWill` in a process of its own; absent: gateways are not told should this one be killed. */
  willCommand?: readonly string[];
}

/** Why the agent leaves. The first reason is the one that counts. */
type Ending =
  | { kind: 'drain'; cause: DrainCause; why: string; restart?: true }
  | { kind: 'engine'; exit: EngineExit }
  | { kind: 'fatal'; sign: string }
  | { kind: 'refused'; refusal: Refusal };

/** Rank 0 registers that of all ranks. */
const NO_HARDWARE: Hardware = { gpus: [], cpus: 0, memory_mib: 0 };

export class Lifecycle {
  readonly #options: LifecycleOptions;
  readonly #gpuUse: GpuUseReader;
  readonly #job: Job;
  readonly #network: Network;
  readonly #host: string;
  readonly #run: RunTool;
  readonly #report: SelfReport;
  readonly #ending = new Once<Ending>();
  readonly #parts: Parts = {};
  readonly #logs: RemoteLogs;
  readonly #shutdown: Shutdown;
  readonly #health: SessionHealth;
  readonly #load: LoadMeter;
  readonly #seals: NodeSeals;
  readonly #hangs: HangRestart;
  #will: LastWill | undefined;
  #deployed: DeployedEngine | undefined;
  #state: StateDir | undefined;
  /** With its weights on local disk; undefined: as it was given. */
  #prepared: Prepared | undefined;
  #signalled = false;
  /** Drained by an order to begin anew, and by nothing else: the caller runs what is installed now. */
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
    if (willCommand !== undefined) this.#will = new LastWill(willCommand, env, log);
    this.#load = new LoadMeter(() => this.#target, config.limits);
    this.#seals = new NodeSeals(() => Date.now(), config.delegate, config.evidence);
    this.#job = new Job({
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
    this.#network = new Network({ config, env, host: this.#host, log });
    this.#shutdown = new Shutdown(this.#parts, this.#logs, log);
    this.#health = new SessionHealth({
      config,
      parts: this.#parts,
      ending: this.#ending,
      deployed: () => this.#deployed,
      ...(options.engineGoneMs === undefined ? {} : { goneMs: options.engineGoneMs }),
      log,
    });
    this.#hangs = new HangRestart({
      config,
      parts: this.#parts,
      load: this.#load,
      ending: this.#ending,
      start: () => this.#startEngine(),
      giveUp: (sign) => this.#ending.settle({ kind: 'fatal', sign }),
      log,
    });
    this.#report = new SelfReport({
      parts: this.#parts,
      job: this.#job,
      network: this.#network,
      load: () => this.#target && this.#load.current,
      name: () => this.#state?.name ?? '',
    });
    // Drained by an order another rank would end the engine under the requests of rank 0.
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

  /** Resolves with the exit code. Throws UsageError when nothing could be started. */
  async run(): Promise<number> {
    const { config, env, log, signals } = this.#options;
    const reader = new SignalReader(() => performance.now());
    const unsubscribe = signals((signal) => this.#onSignal(signal, reader));
    let control: ControlServer | undefined;
    let metrics: MetricsServer | undefined;
    try {
      if (config.command && config.engine && (await isOccupied(config.engine))) {
        throw new UsageError(`something answers at ${config.engine.origin} already: give the engine another --port`);
      }
      await removeStale(env, Date.now());
      const state = asUsage(() => new StateDir(env));
      this.#state = state;
      control = new ControlServer(state.path, this.#controlHandlers());
      await control.open();
      metrics = await openMetrics(config.metrics, { state, page: () => this.#report.page(), log });
      if (this.#registers) {
        const around = {
          network: this.#network,
          engine: () => this.#target,
          load: this.#load,
          seals: this.#seals.opener,
        };
        this.#parts.requests = await openRequests({ config, ...around, state, log });
      }
      await this.#openWeights();
      log(`state in ${state.path}${this.#job.name ? `, ${this.#job.name}` : ''}`);
      if (config.templates !== undefined) this.#awaitDeployments(config.templates);
      else if (config.weights?.environment === undefined && (config.weights?.sources.length ?? 0) === 0)
        this.#startEngine();
      else void this.#startWithWeights();
      const [ending] = await Promise.all([this.#ending.promise, this.#join()]);
      return await this.#end(ending);
    } finally {
      this.#health.close();
      this.#job.close();
      this.#network.close();
      await this.#hangs.close();
      await this.#parts.requests?.close();
      await this.#parts.batches?.close();
      await this.#parts.weights?.close();
      await this.#load.close();
      await this.#parts.engine?.stop(0, Promise.resolve());
      control?.close();
      metrics?.close();
      this.#state?.remove();
      this.#will?.dismiss();
      unsubscribe();
    }
  }

  get #registers(): boolean {
    return this.#options.config.span.role === 'register';
  }

  /** A factory takes a job's node for the one that serves: the other ranks do not name their job. */
  get #jobRecord() {
    return this.#registers ? this.#job.record() : {};
  }

  /** Undefined while no engine answers. */
  get #target(): EngineTarget | undefined {
    const { engine } = this.#parts;
    return engine?.health.answering ? engine.target : undefined;
  }

  #startEngine(): void {
    const { config, stdout, stderr, log } = this.#options;
    const { command, env } = this.#prepared ?? { command: config.command, env: this.#options.env };
    const engine = new Engine({
      command,
      target: config.engine,
      env,
      stdout,
      stderr,
      log,
      onLine: (line) => {
        if (this.#ending.settled) return;
        const sign = config.fatal.find(line);
        if (sign !== undefined) this.#ending.settle({ kind: 'fatal', sign });
      },
      onHealth: (health) => this.#health.see(health),
      now: () => performance.now(),
    });
    this.#parts.engine = engine;
    this.#hangs.watch(engine);
    void engine.exited.then((exit) => {
      // One that was ended because it hung is followed by another.
      if (this.#parts.engine === engine) this.#ending.settle({ kind: 'engine', exit });
    });
  }

  async #openWeights(): Promise<void> {
    const { config, env, log } = this.#options;
    if (config.weights === undefined) return;
    const weights = new NodeWeights({
      config: config.weights,
      env,
      issuerName: (issuer) => this.#network.issuerName(issuer),
      onRecord: (kept) => this.#parts.sessions?.change({ weights: kept }),
      log,
    });
    this.#parts.weights = weights;
    this.#network.serveWeights((proven) => weights.accept(proven));
    await weights.open().catch((error: unknown) => {
      throw new UsageError(`--weights-dir: ${error instanceof Error ? error.message : String(error)}`);
    });
  }

  /** The engine begins when all it loads is on local disk. */
  async #startWithWeights(): Promise<void> {
    const { config, env } = this.#options;
    try {
      this.#prepared = await this.#parts.weights?.prepare(config.command, env);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      return this.#ending.settle({ kind: 'engine', exit: { kind: 'error', message } });
    }
    if (!this.#ending.settled) this.#startEngine();
  }

  /** No engine yet: the network chooses one of the operator's. */
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

  /** Reads the host and joins; stops half-way when the end comes first. */
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
    this.#parts.sessions = new Sessions({
      facts: {
        tier: config.tier,
        labels: this.#registers ? { ...config.labels, ...this.#parts.deployments?.labels } : {},
        models: [],
        hardware: hardwareOf(await reading, config.span.nodes),
        agent_version: AGENT_VERSION,
        host: this.#host,
        addresses: [],
        ...(config.mesh.offerRelay ? { relay: true } : {}),
        ...(config.region === undefined ? {} : { region: config.region }),
        ...(this.#parts.weights === undefined ? {} : { weights: this.#parts.weights.record }),
        ...this.#jobRecord,
      },
      admit: (signal) => join(this.#options, this.#joinContext, signal),
      onCurrent: (session) => {
        this.#nameState(session.id);
        log(`session ${session.id}, state in ${this.#state?.path}`);
        const { ticket } = session;
        this.#will?.set(
          willOf({ gateways: this.#network.gateways, proxy: this.#network.proxy, ticket, record: session.will() }),
        );
      },
      onRefused: (refusal) => {
        if (this.#registers) this.#ending.settle({ kind: 'refused', refusal });
        else log('warning: weights: no gateway admits this rank; it reads the source itself');
      },
      log,
      random: Math.random,
    });
    if (this.#parts.engine) this.#health.see(this.#parts.engine.health);
    if (this.#registers)
      this.#parts.batches = openBatches({
        config,
        parts: this.#parts,
        network: this.#network,
        env,
        engine: () => this.#target,
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
      engine: () => this.#target,
      load: this.#load,
      seals: this.#seals,
    };
  }

  #nameState(session: string): void {
    try {
      this.#state?.rename(session);
    } catch (error) {
      // A cleanup of that directory removed the socket too; the engine serves all the same.
      this.#options.log(`no state directory any more: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  #onSignal(signal: EndSignal, reader: SignalReader): void {
    this.#signalled = true;
    const { kind, cause } = reader.read(signal);
    if (kind === 'force') {
      this.#options.log(`${signal} again: ending at once`);
      this.#shutdown.force();
    } else if (kind === 'drain' && this.#ending.settled) {
      // Already draining at its ease: from now on a SIGKILL is near.
      this.#shutdown.shorten(this.#job.plan(cause).drainMs);
    } else if (kind === 'drain') {
      this.#ending.settle({ kind: 'drain', cause, why: signal });
    }
  }

  async #end(ending: Ending): Promise<number> {
    const { graceMs } = this.#job.plan('signal');
    switch (ending.kind) {
      case 'drain': {
        const plan = this.#job.plan(ending.cause);
        if (!this.#registers) await this.#shutdown.keep(plan, ending.why);
        else {
          const fate = ending.cause === 'signal' ? this.#job.fate() : undefined;
          await this.#shutdown.drain(plan, ending.why, this.#job.drainReason(ending.cause, ending.why), fate);
        }
        this.restarts = ending.restart === true && !this.#signalled;
        return this.#signalled ? EXIT_SIGNALLED : EXIT_DONE;
      }
      case 'refused':
        await this.#shutdown.afterRefusal(graceMs);
        return EXIT_REFUSED;
      case 'fatal':
        await this.#shutdown.afterFatal(ending.sign, this.#options.stderr);
        return this.#signalled ? EXIT_SIGNALLED : EXIT_ENGINE;
      case 'engine':
        // Slurm ends every process of a job in one breath; the engine may simply have been the first to go.
        await this.#shutdown.afterEngine(ending.exit, graceMs, this.#options.stderr, this.#job.fate());
        return this.#signalled ? EXIT_SIGNALLED : EXIT_ENGINE;
    }
  }

  #controlHandlers() {
    const parts = this.#parts;
    return {
      status: () => this.#report.status(),
      network: () => this.#report.networkRows(),
      metrics: () => this.#report.page(),
      get weights() {
        return parts.weights;
      },
      drain: () => this.#ending.settle({ kind: 'drain', cause: 'request', why: 'otela-agent drain' }),
      tail: () => this.#parts.engine?.tail() ?? Buffer.alloc(0),
      follow: (listener: (chunk: Buffer) => void) => this.#parts.engine?.follow(listener) ?? (() => {}),
    };
  }
}

function asUsage<T>(act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}
