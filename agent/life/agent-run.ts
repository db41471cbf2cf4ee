/**
 * The run of one agent: JOIN as soon as a gateway can be reached, SERVING while the engine answers, DOWN when the
 * engine ends or the agent begins to end, LEFT at the end. In every case the engine's processes end with the agent.
 */
import { dirname } from 'node:path';
import { UsageError } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { toUsageError } from '../config/to-usage-error.ts';
import { isOccupied } from '../engine/engine.ts';
import { ControlServer } from '../host/control-server.ts';
import { type Hardware, inventory } from '../host/hardware-inventory.ts';
import { LastWill } from '../host/last-will-process.ts';
import { removeStale, StateDir } from '../host/state-directory.ts';
import { lastWillOf } from '../tunnel/last-will-message.ts';
import { closeAll } from './close-all.ts';
import { controlHandlers } from './control-handlers.ts';
import { type Agent, type AgentOptions, createAgent } from './create-agent.ts';
import type { SignalSource } from './ending-signals.ts';
import { openBatchRunner } from './open-batch-runner.ts';
import { openMetrics } from './open-metrics.ts';
import { openRequestService } from './open-request-service.ts';
import { SelfReport } from './self-report.ts';
import { createSessions } from './session/create-sessions.ts';
import type { Session } from './session/session.ts';
import { type FaultSource, ProcessFaults } from './uncaught-errors.ts';

interface AgentRunOptions extends AgentOptions {
  signals: SignalSource;
  faults: FaultSource;
  /**
   * Command that runs `deliverLastWill` in a separate process. Absent: gateways are not informed if this process is
   * killed.
   */
  willCommand?: readonly string[];
}

/** Hardware that agents of the other ranks register: none, because rank 0 registers the hardware of all ranks. */
const NO_HARDWARE: Hardware = { gpus: [], cpus: 0, memory_mib: 0 };

type Close = () => unknown;

export class AgentRun {
  readonly #options: AgentRunOptions;
  readonly #agent: Agent;
  readonly #will: LastWill | undefined;

  constructor(options: AgentRunOptions) {
    this.#options = options;
    this.#agent = createAgent(options);
    const { willCommand, env } = options;
    this.#will = willCommand && new LastWill(willCommand, env, this.#agent.log);
  }

  /**
   * True only if the agent drained because of an order to restart. The caller then runs the version that is installed
   * now.
   */
  get restarts(): boolean {
    return this.#agent.life.restarts;
  }

  /** Resolves with the exit code. @throws UsageError if nothing could be started */
  async run(): Promise<number> {
    const { signals, faults } = this.#options;
    const { life, log } = this.#agent;
    const unsubscribe = signals((signal) => life.send({ kind: 'signal', signal, at: performance.now() }));
    const faultLog = new ProcessFaults(log);
    const ignore = faults((error) => life.end({ kind: 'fault', what: faultLog.record(error) }));
    /** Functions that close what `#open` opened, in the order of opening. */
    const opened: Close[] = [];
    try {
      const state = await this.#open(opened);
      await Promise.all([life.ending.promise, this.#join(state).then(() => life.send({ kind: 'joined' }))]);
      return await life.exit;
    } finally {
      await this.#close(opened);
      await closeAll(log, [unsubscribe, ignore]);
    }
  }

  /** Starts everything except the sessions. */
  async #open(opened: Close[]): Promise<StateDir> {
    const { config, env } = this.#options;
    const { adapters, parts, life, job, network, engineStart, load, seals, gpus, registers, log } = this.#agent;
    if (config.command && config.engine && (await isOccupied(config.engine))) {
      throw new UsageError(`another server already answers at ${config.engine.origin}: give the engine another --port`);
    }
    await removeStale(env, Date.now());
    const state = toUsageError(() => new StateDir(env));
    const report = new SelfReport({
      parts,
      job,
      network,
      load: () => engineStart.target && load.current,
      gpus,
      name: () => state.name,
    });
    const drain = () => life.end({ kind: 'drain', cause: 'request', why: 'otela-agent drain' });
    const control = new ControlServer(state.path, controlHandlers(parts, report, drain));
    opened.push(() => control.close());
    opened.push(() => state.remove());
    await control.open();
    const metrics = await openMetrics(config.metrics, { state, page: () => report.page(), log });
    opened.push(() => metrics?.close());
    if (registers) {
      const engine = () => engineStart.target;
      const gpus = () => (parts.sessions?.facts.hardware.gpus ?? []).reduce((sum, { count }) => sum + count, 0);
      const service = { config, network, engine, load, gpus, seals: seals.opener, state, log };
      parts.requests = await openRequestService(service);
    }
    adapters?.open();
    opened.push(() => adapters?.close());
    await engineStart.openWeights();
    log(`state in ${state.path}${job.name ? `, ${job.name}` : ''}`);
    this.#startEngine();
    return state;
  }

  #startEngine(): void {
    const { templates, weights } = this.#options.config;
    const { engineStart } = this.#agent;
    // If there are templates, an order chooses the engine later.
    if (templates !== undefined) return;
    if (weights?.environment === undefined && (weights?.sources.length ?? 0) === 0) engineStart.start();
    else neverRejects(engineStart.startWithWeights());
  }

  /** Reads this machine's hardware, then joins. Returns early if the end begins meanwhile. */
  async #join(state: StateDir): Promise<void> {
    const { config, env } = this.#options;
    const { options, parts, life, job, jobRecord, network, engineStart, deployed, health } = this.#agent;
    const { load, seals, host, registers, run, log } = this.#agent;
    if (config.span.reason) log(config.span.reason);
    job.open();
    if (!registers) {
      log('this agent only supervises its part of the engine; the agent of rank 0 registers the engine');
      if (parts.weights === undefined) return;
    }
    const reading = registers ? inventory(env, run, log) : Promise.resolve(NO_HARDWARE);
    await Promise.race([reading, life.ending.promise]);
    if (life.ending.settled) return;
    const engine = () => engineStart.target;
    const sessions = createSessions({
      joinOptions: options,
      around: { network, job, parts, engine, load, seals },
      hardware: await reading,
      host,
      registers,
      jobRecord: jobRecord(),
      onRefused: (refusal) => life.end({ kind: 'refused', refusal }),
      onCurrent: (session) => this.#onSession(session, state),
    });
    parts.sessions = sessions;
    if (sessions.facts.hardware.gpus.length > 0) this.#agent.gpus.open();
    if (parts.engine) health.see(parts.engine.health);
    const command = () => deployed?.command ?? config.command;
    const secrets = [dirname(state.path), ...(config.functions?.secretFiles ?? [])];
    const ends = () => job.ends;
    if (registers)
      parts.batches = openBatchRunner({ config, parts, network, env, engine, command, load, ends, secrets, log });
    await Promise.race([sessions.open(), life.ending.promise]);
  }

  #onSession(session: Session, state: StateDir): void {
    const { network, log } = this.#agent;
    try {
      state.rename(session.id);
    } catch (error) {
      // The state directory was removed, for example by a cleanup of /tmp, and the control socket with it. The engine
      // continues to serve.
      log(`the state directory is lost: ${errorText(error)}`);
    }
    log(`session ${session.id}, state in ${state.path}`);
    const { proxy } = network;
    const gateways = network.gateways.map(({ url }) => url);
    this.#will?.set(lastWillOf({ gateways, proxy, ticket: session.ticket, record: session.will() }));
  }

  async #close(opened: readonly Close[]): Promise<void> {
    const { parts, life, job, network, health, hangs, load, gpus, log } = this.#agent;
    await closeAll(log, [
      () => health.close(),
      () => gpus.close(),
      () => job.close(),
      () => network.close(),
      () => hangs.close(),
      () => parts.requests?.close(),
      () => parts.batches?.close(),
      () => parts.weights?.close(),
      () => load.close(),
      () => parts.engine?.stop(0, Promise.resolve()),
      ...opened,
      // If a gateway was not informed, the last will is kept: it is delivered after this process has ended.
      () => (life.needsLastWill ? undefined : this.#will?.dismiss()),
    ]);
  }
}
