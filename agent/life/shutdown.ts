/** The agent's shutdown: the records that it publishes, and its waits with their limits. */
import type { Writable } from 'node:stream';
import { formatDuration } from '../config/duration.ts';
import type { Deployments } from '../deploy/deployments.ts';
import type { Orders } from '../deploy/orders.ts';
import { describeExit, type EngineExit } from '../engine/child.ts';
import type { Engine } from '../engine/engine.ts';
import type { JobFate } from '../host/jobs/batch-job.ts';
import type { RequestService } from '../ingress/service.ts';
import { Deferred, settlesWithin } from './deferred.ts';
import type { DrainPlan } from './drain-plan.ts';
import type { SignalWarning } from './job-watch.ts';
import type { NodeWeights } from './node-weights.ts';
import type { RemoteLogs } from './remote-logs.ts';
import type { Sessions } from './session/sessions.ts';

/** Runs lines of batches on this node. */
export interface BatchService {
  /** Takes no new leases; returns the current ones when their lines have ended, or at `signal`. */
  drain(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

/** The parts that a shutdown closes. An agent that ends early has only some of them. */
export interface ShutdownParts {
  engine?: Engine;
  sessions?: Sessions;
  /** Orders of gateways. */
  orders?: Orders;
  /** The deployments, if this agent accepts any. */
  deployments?: Deployments;
  /** Requests of other agents, and this agent's own ingress. */
  requests?: RequestService;
  /** Weights that this node stores. */
  weights?: NodeWeights;
  /** Lines of batches. */
  batches?: BatchService;
}

/** The batch system's answer after a signal. */
interface Told {
  /** Reason of the job's end; takes precedence over the signal's. */
  fate?: Promise<JobFate | undefined> | undefined;
  /** The job continues. */
  warning?: Promise<SignalWarning | undefined> | undefined;
}

/** Responses that were on their way when the engine died are passed on; no new ones can arrive. */
const LAST_ANSWERS_MS = 2000;

/**
 * Wait after the first sign of a broken engine, in which the other ranks' errors and the end of the traceback arrive.
 */
const LAST_OUTPUT_MS = 500;

/**
 * The log's end is one small upload and one small file. Neither a gateway that is away nor a disk that hangs may keep
 * GPUs from the next job.
 */
const LOG_TAIL_WAIT_MS = 2000;

/** Time to send the results of finished lines to the gateway, and to return the leases. */
const BATCHES_WAIT_MS = 1_000;

/** Time from SIGTERM to SIGKILL: a broken engine has nothing to save, and often hangs in its driver. */
const BROKEN_GRACE_MS = 2000;

/** If the shutdown is forced, LEFT may take this long. */
const FORCED_LEAVE_MS = 250;

/** Lines of the engine's output that are repeated after its end: a traceback's last call and its error. */
const LAST_LINES = 12;

const never = new Promise<never>(() => {});

export class Shutdown {
  readonly #parts: ShutdownParts;
  readonly #logs: Pick<RemoteLogs, 'atEnd'>;
  readonly #log: (line: string) => void;
  /** True if a gateway was not informed of the end, so the last will must be delivered. */
  untold = false;
  readonly #forced = new Deferred<void>();
  readonly #shortened = new Deferred<void>();

  constructor(parts: ShutdownParts, logs: Pick<RemoteLogs, 'atEnd'>, log: (line: string) => void) {
    this.#parts = parts;
    this.#logs = logs;
    this.#log = log;
  }

  /** Ends every wait of the shutdown immediately. */
  force(): void {
    this.#forced.settle();
  }

  /** Limits a drain in progress to the wait of `plan`, counted from now. */
  async shorten(plan: DrainPlan, warning?: Promise<SignalWarning | undefined>): Promise<void> {
    await this.#wait(never, plan, warning);
    this.#shortened.settle();
  }

  /** DOWN, running requests, LEFT, engine. */
  async drain(plan: DrainPlan, why: string, reason: string, { fate, warning }: Told = {}) {
    const running = this.inFlight;
    this.#log(`${why}: draining, ${running} requests running, at most ${formatDuration(plan.drainMs)}`);
    this.#parts.sessions?.down(reason);
    const told = this.#logFate(fate);
    const batches = new AbortController();
    const lines = this.#parts.batches?.drain(batches.signal);
    const done = Promise.race([Promise.all([this.#drained(), lines]), this.#engineEnds()]);
    const { graceMs } = await this.#wait(done, plan, warning);
    batches.abort();
    const given = settlesWithin(BATCHES_WAIT_MS, lines ?? Promise.resolve());
    const left = this.inFlight;
    if (left > 0) this.#log(`${left} requests still running; leaving all the same`);
    await Promise.race([told, this.#forced.promise]);
    // Concurrent, because one of the three seconds before SIGKILL must remain for LEFT, even if a gateway does not
    // answer.
    await Promise.all([given, this.#uploadLogTail()]);
    await this.#leave(graceMs);
  }

  /**
   * Waits for `done`, at most as long as `plan` allows. If the batch system reports a warning, the warning's plan
   * applies, counted from then on.
   */
  async #wait(
    done: Promise<unknown>,
    plan: DrainPlan,
    warning?: Promise<SignalWarning | undefined>,
  ): Promise<DrainPlan> {
    const from = performance.now();
    let counts = plan;
    let until = from + plan.drainMs;
    let over = false;
    const ended = done.then(() => {
      over = true;
    });
    const told = (warning ?? Promise.resolve(undefined)).then((found) => {
      if (found === undefined || over) return;
      counts = found.plan;
      until = performance.now() + counts.drainMs;
      this.#log(`the batch system lets the job run on: waiting at most ${formatDuration(counts.drainMs)}`);
      this.#parts.sessions?.down(found.reason);
    });
    await settlesWithin(plan.drainMs, Promise.race([ended, told]));
    const restMs = Math.round(until - performance.now());
    if (!over && restMs > 0) await settlesWithin(restMs, ended);
    return counts;
  }

  async #logFate(fate: Promise<JobFate | undefined> | undefined): Promise<void> {
    const told = await fate;
    if (told === undefined) return;
    this.#log(`the batch system ends this job: ${told}`);
    this.#parts.sessions?.down(told);
  }

  /** Running requests of gateways and of other agents. */
  get inFlight(): number {
    const { sessions, requests } = this.#parts;
    return (sessions?.inFlight ?? 0) + (requests?.inFlight ?? 0);
  }

  /** Resolves when no request of gateways or other agents runs any more; new ones are refused. */
  async #drained(): Promise<void> {
    const { sessions, requests } = this.#parts;
    await Promise.all([sessions?.drain(), requests?.drain()]);
  }

  /** Drains the part of an engine on another rank, which also computes the requests that rank 0 waits for. */
  async keep(plan: DrainPlan, why: string, warning?: Promise<SignalWarning | undefined>): Promise<void> {
    this.#log(`${why}: keeping this part of the engine for up to ${formatDuration(plan.drainMs)}`);
    const { graceMs } = await this.#wait(this.#engineEnds(), plan, warning);
    await this.#leave(graceMs);
  }

  /** DOWN immediately; the engine's last output; LEFT; the rest of its processes. */
  async afterEngine(exit: EngineExit, graceMs: number, stderr: Writable, fate: Promise<JobFate | undefined>) {
    const { sessions } = this.#parts;
    sessions?.down('engine-ended');
    const told = this.#logFate(fate);
    this.#log(describeExit(exit));
    this.#repeatLastLines(stderr);
    const upload = this.#uploadLogTail();
    await settlesWithin(LAST_ANSWERS_MS, Promise.race([this.#drained(), this.#forced.promise]));
    await upload;
    await Promise.race([told, this.#forced.promise]);
    await this.#leave(graceMs);
  }

  /**
   * Fail-stop: the engine runs but does not compute any more. DOWN immediately. Running requests are returned, for
   * other nodes to answer. The output of the next moment is added to the log's end. Then LEFT, and meanwhile its
   * processes end.
   */
  async afterFatal(sign: string, stderr: Writable): Promise<void> {
    const { engine, sessions, requests } = this.#parts;
    sessions?.down('engine-broken');
    sessions?.giveUp();
    const broken = requests?.close();
    this.#log(`the engine is broken, this node gives itself up: ${sign}`);
    await settlesWithin(LAST_OUTPUT_MS, Promise.race([engine?.exited ?? never, this.#forced.promise]));
    this.#repeatLastLines(stderr);
    await broken;
    const upload = this.#uploadLogTail();
    const ended = engine?.stop(BROKEN_GRACE_MS, this.#forced.promise);
    await upload;
    await this.#leave(0);
    await ended;
  }

  /** Called before LEFT, because gateways accept nothing from a session that has left. */
  async #uploadLogTail(): Promise<void> {
    const { sessions } = this.#parts;
    const session = sessions?.current?.id;
    if (sessions === undefined || session === undefined || this.#forced.settled) return;
    const { tail, kept } = this.#logs.atEnd(session);
    const given = new AbortController();
    const uploaded = tail === undefined ? undefined : sessions.leaveLogTail(tail, given.signal);
    await settlesWithin(LOG_TAIL_WAIT_MS, Promise.race([Promise.all([kept, uploaded]), this.#forced.promise]));
    given.abort();
  }

  #repeatLastLines(stderr: Writable): void {
    const lines = this.#parts.engine?.lastLines(LAST_LINES) ?? [];
    if (lines.length > 0) stderr.write(`${['its last lines were:', ...lines].join('\n  ')}\n`);
  }

  /** Ends a wait for running requests early; without an engine no request can finish. */
  #engineEnds(): Promise<unknown> {
    const gone = this.#parts.engine?.exited ?? never;
    return Promise.race([this.#forced.promise, this.#shortened.promise, gone]);
  }

  async #leave(graceMs: number): Promise<void> {
    const { engine, sessions, requests } = this.#parts;
    const goodbye = (async () => {
      sessions?.down();
      await requests?.close(); // ends running requests over the meshes, which end with their sessions
      this.untold = (await sessions?.leave()) === false;
    })();
    const hurried = this.#forced.promise.then(() => settlesWithin(FORCED_LEAVE_MS, goodbye));
    const ended = this.#forced.settled ? engine?.stop(0, this.#forced.promise) : undefined;
    // True until `goodbye` has completed.
    this.untold = true;
    await Promise.race([goodbye, hurried]);
    await (ended ?? engine?.stop(graceMs, this.#forced.promise));
    this.#log('left');
  }
}
