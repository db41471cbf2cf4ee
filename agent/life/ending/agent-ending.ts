/**
 * Carries out the state machine of an agent's end (ending-transitions.ts): it has one queue of events and one timer,
 * and runs the actions.
 */
import type { Writable } from 'node:stream';
import { errorText } from '../../../shared/text/error-text.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { waitClock } from '../../wait-clock.ts';
import type { AgentParts } from '../agent-parts.ts';
import type { JobWatch } from '../job-watch.ts';
import type { RemoteLogs } from '../remote-logs.ts';
import { Deferred } from '../settles-within.ts';
import {
  ALIVE,
  type EndingAction,
  type EndingEvent,
  type EndingState,
  type EndingView,
  type EndReason,
  type Wait,
} from './ending-state.ts';
import { nextDeadline, stepEnding } from './ending-transitions.ts';

interface AgentEndingOptions {
  parts: AgentParts;
  job: Pick<JobWatch, 'plan' | 'drainReason' | 'fate' | 'warning'>;
  logs: Pick<RemoteLogs, 'atEnd'>;
  /** False if the agent of rank 0 registers the engine. */
  registers: boolean;
  stderr: Writable;
  log(line: string): void;
}

/**
 * Maximum number of queued events. Events wait only while an action of another event runs, and few actions send events
 * immediately.
 */
const EVENTS_MAX = 64;
/** Number of output lines that are repeated after the engine's end: a traceback's last call and its error. */
const LAST_LINES = 12;

export class AgentEnding {
  readonly #options: AgentEndingOptions;
  readonly #queue: EndingEvent[] = [];
  readonly #ending = new Deferred<void>();
  readonly #exit = new Deferred<number>();
  readonly #hurried = new Deferred<void>();
  readonly #lines = new AbortController();
  readonly #upload = new AbortController();
  #state: EndingState = ALIVE;
  #stepping = false;
  #stopTimer = (): void => {};

  constructor(options: AgentEndingOptions) {
    this.#options = options;
  }

  /** Settled when the first reason to end occurred. */
  get ending(): Pick<Deferred<void>, 'promise' | 'settled'> {
    return this.#ending;
  }

  /** Resolves with the exit code when the end is complete. */
  get exit(): Promise<number> {
    return this.#exit.promise;
  }

  /** True if the agent ends because of an order to restart. */
  get restarts(): boolean {
    const { reason, firstSignalAt } = this.#state;
    return reason?.kind === 'drain' && reason.restart === true && firstSignalAt === undefined;
  }

  /** True if a gateway was not informed of the end, so the last will must be delivered. */
  get needsLastWill(): boolean {
    return this.#state.needsLastWill;
  }

  /** Number of running requests of gateways and of other agents. */
  get inFlight(): number {
    const { sessions, requests } = this.#options.parts;
    return (sessions?.inFlight ?? 0) + (requests?.inFlight ?? 0);
  }

  /** Begins the end. Only the first reason counts. */
  end(reason: EndReason): void {
    this.send({ kind: 'end', reason });
  }

  send(event: EndingEvent): void {
    if (this.#queue.length >= EVENTS_MAX) return this.#options.log(`too many events: ${event.kind} is dropped`);
    this.#queue.push(event);
    if (this.#stepping) return;
    this.#stepping = true;
    for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift()) this.#step(next);
    this.#stepping = false;
    this.#setTimer();
  }

  /** Never throws. */
  #step(event: EndingEvent): void {
    const { state, actions } = stepEnding(this.#state, event, this.#view());
    this.#state = state;
    if (state.reason !== undefined) this.#ending.settle();
    for (const action of actions) this.#guarded(() => this.#act(action));
  }

  #view(): EndingView {
    const { job, registers } = this.#options;
    return {
      now: waitClock.now(),
      registers,
      inFlight: this.inFlight,
      plan: (cause) => job.plan(cause),
      drainReason: (cause, why) => job.drainReason(cause, why),
    };
  }

  #setTimer(): void {
    this.#stopTimer();
    const at = nextDeadline(this.#state);
    if (!Number.isFinite(at)) return;
    const ms = Math.max(1, Math.ceil(at - waitClock.now()));
    this.#stopTimer = waitClock.after(ms, () => this.send({ kind: 'time' }));
  }

  #act(action: EndingAction): void {
    const { parts, job, log } = this.#options;
    switch (action.kind) {
      case 'log':
        return log(action.text);
      case 'down':
        return parts.sessions?.down(action.reason);
      case 'ask-fate':
        return this.#then(job.fate(), undefined, (fate) => this.send({ kind: 'fate', fate }));
      case 'ask-warning':
        return this.#then(job.warning(), undefined, (warning) => warning && this.send({ kind: 'warning', warning }));
      case 'drain':
        return this.#awaited('requests', () => Promise.all([parts.sessions?.drain(), parts.requests?.drain()]));
      case 'drain-lines':
        return this.#awaited('lines', () => parts.batches?.drain(this.#lines.signal));
      case 'return-lines':
        return this.#lines.abort();
      case 'watch-engine':
        return parts.engine && this.#awaited('engine', () => parts.engine?.exited);
      case 'return-requests':
        parts.sessions?.giveUp();
        return this.#awaited('returned', () => parts.requests?.close());
      case 'repeat-output':
        return this.#repeatOutput();
      case 'upload-log':
        return this.#awaited('log', () => this.#uploadLog());
      case 'leave':
        this.#upload.abort();
        return this.#then(this.#leave(), false, (acknowledged) => this.send({ kind: 'left', acknowledged }));
      case 'stop-engine':
        return this.#awaited('stopped', () => parts.engine?.stop(action.graceMs, this.#hurried.promise));
      case 'hurry':
        return this.#hurried.settle();
      case 'ended':
        return this.#exit.settle(action.code);
    }
  }

  #repeatOutput(): void {
    const { parts, stderr } = this.#options;
    const lines = parts.engine?.lastLines(LAST_LINES) ?? [];
    if (lines.length > 0) stderr.write(`${['its last lines were:', ...lines].join('\n  ')}\n`);
  }

  /** Called before LEFT, because gateways accept nothing from a session that has left. */
  async #uploadLog(): Promise<void> {
    const { parts, logs } = this.#options;
    const { sessions } = parts;
    const session = sessions?.current?.id;
    if (sessions === undefined || session === undefined) return;
    const { tail, kept } = logs.atEnd(session);
    await Promise.all([kept, tail && sessions.leaveLogTail(tail, this.#upload.signal)]);
  }

  /** Returns false if a gateway did not acknowledge LEFT. */
  async #leave(): Promise<boolean> {
    const { sessions, requests } = this.#options.parts;
    sessions?.down();
    await requests?.close(); // ends running requests over the meshes, because a mesh ends with its session
    return (await sessions?.leave()) !== false;
  }

  #awaited(wait: Wait, act: () => Promise<unknown> | undefined): void {
    this.#then((async () => act())(), undefined, () => this.send({ kind: 'done', wait }));
  }

  /** Sends an event also if the promise rejects, because the end must not hang. */
  #then<T>(promise: Promise<T>, failed: NoInfer<T>, send: (value: T) => void): void {
    const log = (error: unknown) => {
      this.#options.log(`while shutting down: ${errorText(error)}`);
      return failed;
    };
    neverRejects(promise.catch(log).then(send));
  }

  #guarded(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.#options.log(`while shutting down: ${errorText(error)}`);
    }
  }
}
