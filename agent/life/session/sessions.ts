/**
 * The sessions of one agent, one after the other. The agent and its engine outlive them. If a session ends while its
 * agent lives, a new session with a new key follows. If an engine serves, the new session serves before the old one
 * ends.
 */

import { errorText } from '../../../shared/text/error-text.ts';
import { Backoff } from '../../../shared/timing/backoff.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { formatDuration } from '../../config/duration.ts';
import { AdmissionRefusedError } from '../../tunnel/gateway-admission.ts';
import type { TunnelRefusal } from '../../tunnel/tunnel-types.ts';
import { Deferred, settlesWithin } from '../settles-within.ts';
import type { Session } from './session.ts';
import type { NodeFacts, RecordChange, SessionRecord } from './session-record.ts';

interface SessionEvents {
  /** Called if every gateway refuses this session, and would also refuse another session of this agent. */
  onRefused(refusal: TunnelRefusal): void;
  /** Called if the session has ended, according to every gateway that can be asked. */
  onOver(why: string): void;
}

/** What is needed to create a session after an admission. */
export interface GrantedAdmission {
  /** How long the ticket is valid, in milliseconds; Infinity: without end. */
  lifetimeMs: number;
  /** Creates the session. Called once, immediately. */
  create(first: SessionRecord, events: SessionEvents): Session;
}

interface SessionsOptions {
  facts: NodeFacts;
  /**
   * Tries until a gateway admits this agent.
   * @throws AdmissionRefusedError, or any error if `signal` is aborted
   */
  admit(signal: AbortSignal): Promise<GrantedAdmission>;
  /** Called with the session that represents this agent from now on. */
  onCurrent(session: Session): void;
  /** Called when the current session ends because it serves nothing any more, and another one follows. */
  onIdle(): void;
  /** Called if no gateway admits this agent any more. */
  onRefused(refusal: TunnelRefusal): void;
  log(line: string): void;
  /** A random number x with 0 ≤ x < 1. */
  random(): number;
}

/**
 * Share of a ticket's lifetime after which a new session replaces the current one. In the remaining time the agent
 * tries again if gateways are unreachable.
 */
const ROLL_AT = 0.9;
/**
 * ROLL_AT is reduced by a random value of at most this. Otherwise agents that were admitted together would all ask for
 * new tickets together.
 */
const ROLL_SPREAD = 0.05;
/**
 * If a replacement is refused (for example because the join token was revoked), it is tried again after this part of
 * the ticket's lifetime.
 */
const ROLL_RETRY_SHARE = 0.03;
/** Maximum of a timer: above it, setTimeout fires immediately. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/** Maximum wait for the new session before the old one drains anyway. */
const OVERLAP_MS = 10_000;

/** Interval of checks whether the new session has a channel to other agents. */
const POLL_MS = 100;
/**
 * After this time all agents and all isolates of the gateways have the new session's record, even if a message was
 * lost.
 */
const RECORD_SPREAD_MS = 3_000;

/** Maximum time for running requests of a replaced session. */
const REPLACED_DRAIN_MS = 600_000;
/**
 * Maximum time for running requests of a replaced session without an engine. Such requests only have their last bytes
 * to send.
 */
const IDLE_DRAIN_MS = 2000;

/**
 * If a session ended after at least this time, the next one starts without a pause. After each shorter session the
 * pause grows.
 */
const LASTING_MS = 60_000;
const BACKOFF = { minMs: 500, maxMs: 60_000 };
const BACKOFF_SPREAD = 0.5;

/** Wait before the next try after an error that is not a refusal. */
const UNEXPECTED_ERROR_WAIT_MS = 2000;

/** Maximum number of replaced sessions that still drain. Each keeps its tunnels. */
const REPLACED_MAX = 4;

/**
 * Why a session starts. `idle`: the node no longer serves anything. `over`: the current session is no longer valid.
 * `roll`: the current session stays valid for a while.
 */
type StartReason = 'first' | 'idle' | 'over' | 'roll';

export class Sessions {
  readonly #options: SessionsOptions;
  readonly #stop = new AbortController();
  readonly #stopped = new Deferred<void>();
  readonly #replaced = new Set<Session>();
  #facts: NodeFacts;
  #state: 'JOIN' | 'SERVING' = 'JOIN';
  #current: Session | undefined;
  /** Lifetime of the current session's ticket, in milliseconds. */
  #lifetimeMs = Number.POSITIVE_INFINITY;
  /** The current session is no longer valid. It is kept for its running requests until the next one joins. */
  #over = false;
  #since = 0;
  readonly #backoff: Backoff;
  #joining = false;
  #rollTimer: NodeJS.Timeout | undefined;

  constructor(options: SessionsOptions) {
    this.#options = options;
    this.#backoff = new Backoff(BACKOFF, options.random, BACKOFF_SPREAD);
    this.#facts = options.facts;
  }

  get current(): Session | undefined {
    return this.#current;
  }

  /**
   * The state of the current session's record: SERVING once an engine has been ready, otherwise JOIN. A session that
   * has not joined yet publishes it later.
   */
  get state(): 'JOIN' | 'SERVING' {
    return this.#state;
  }

  get facts(): NodeFacts {
    return this.#facts;
  }

  get inFlight(): number {
    return this.#all().reduce((sum, { inFlight }) => sum + inFlight, 0);
  }

  /** Joins for the first time. Resolves when admitted or refused, or when the agent begins to end. */
  open(): Promise<void> {
    return this.#startNext('first');
  }

  /** Changes the record of the current session and of all later ones. */
  change({ state, ...facts }: RecordChange): void {
    this.#facts = { ...this.#facts, ...facts };
    if (state === 'SERVING') this.#state = state;
    this.#current?.change({ ...facts, ...(state === undefined ? {} : { state }) });
  }

  /**
   * Call when the engine of this session is gone. Publishes DOWN and LEFT, and starts a new session that waits for an
   * engine. Running requests may continue for `drainMs`. Resolves when the old session has left.
   */
  async becomeIdle(why: string, change: Pick<RecordChange, 'labels'> = {}, drainMs = IDLE_DRAIN_MS): Promise<void> {
    this.#state = 'JOIN';
    this.#facts = { ...this.#facts, ...change, models: [] };
    await this.#end('idle', why, drainMs);
  }

  #end(reason: StartReason, why: string, drainMs = IDLE_DRAIN_MS): Promise<void> {
    const ending = this.#current;
    if (this.#stop.signal.aborted || ending === undefined) return Promise.resolve();
    this.#options.log(`session ${ending.id} is ending: ${why}; starting a new session`);
    this.#over ||= reason === 'over';
    let left = Promise.resolve();
    if (reason === 'idle') {
      this.#current = undefined;
      this.#options.onIdle();
      this.#keepReplaced(ending);
      left = this.#retire(ending, drainMs);
    }
    neverRejects(this.#startNext(reason));
    return left;
  }

  /**
   * Replaces the current session. Only one replacement runs at a time. The new session's record is read when it joins.
   */
  async #startNext(reason: StartReason): Promise<void> {
    if (this.#joining || this.#stop.signal.aborted) return;
    this.#joining = true;
    const { signal } = this.#stop;
    clearTimeout(this.#rollTimer);
    if (reason === 'idle' || reason === 'over') await this.#pause();
    try {
      const admitted = await this.#options.admit(signal);
      this.#joining = false; // cleared before the new session starts, because that may end immediately
      if (!signal.aborted) this.#switchTo(admitted);
    } catch (error) {
      this.#joining = false;
      if (signal.aborted) return;
      if (error instanceof AdmissionRefusedError) return this.#notAdmitted(reason, error);
      // An unexpected error. If the agent already had a session, it tries again, because the running engine is worth
      // more than the missing session.
      if (reason === 'first') throw error;
      this.#options.log(`cannot start a new session: ${errorText(error)}`);
      await settlesWithin(UNEXPECTED_ERROR_WAIT_MS, this.#stopped.promise);
      neverRejects(this.#startNext(reason));
    }
  }

  #notAdmitted(reason: StartReason, { refusal, message }: AdmissionRefusedError): void {
    // Keep a session that is still valid: its ticket stays valid even if the join token was revoked.
    if (reason !== 'roll' || this.#current === undefined || this.#over) return this.#options.onRefused(refusal);
    this.#options.log(`cannot start a new session yet: ${message}`);
    this.#rollTimer = this.#timer(this.#current, ROLL_RETRY_SHARE * this.#lifetimeMs);
  }

  #switchTo({ create, lifetimeMs }: GrantedAdmission): void {
    const before = this.#current;
    const session = create(
      { ...this.#facts, state: 'JOIN', version: 0 },
      {
        onRefused: (refusal) => {
          if (session === this.#current) this.#options.onRefused(refusal);
        },
        onOver: (why) => {
          if (session === this.#current) neverRejects(this.#end('over', why));
        },
      },
    );
    this.#current = session;
    this.#since = performance.now();
    this.#lifetimeMs = lifetimeMs;
    if (Number.isFinite(lifetimeMs)) {
      this.#rollTimer = this.#timer(session, lifetimeMs * (ROLL_AT - ROLL_SPREAD * this.#options.random()));
    }
    this.#options.onCurrent(session);
    session.open();
    session.change({ ...this.#facts, state: this.#state });
    const over = this.#over;
    this.#over = false;
    if (before === undefined) return;
    this.#keepReplaced(before);
    neverRejects(this.#overlap(session, before, over).then(() => this.#retire(before, REPLACED_DRAIN_MS)));
  }

  /**
   * Both sessions serve until gateways and other agents know the new one. Otherwise a client might learn only that the
   * old session ended, and would have no node to ask.
   */
  async #overlap(session: Session, before: Session, over: boolean): Promise<void> {
    const stopped = this.#stopped.promise;
    await settlesWithin(OVERLAP_MS, Promise.race([session.stored, stopped]));
    if (over) return;
    for (let waited = 0; before.peers > 0 && session.peers === 0 && waited < OVERLAP_MS; waited += POLL_MS) {
      if (await settlesWithin(POLL_MS, stopped)) return;
    }
    await settlesWithin(RECORD_SPREAD_MS, stopped);
  }

  /**
   * Pauses before the next session if the last one was short. If something ends every session immediately, the registry
   * must not grow by one session per round trip.
   */
  async #pause(): Promise<void> {
    if (performance.now() - this.#since < LASTING_MS) await settlesWithin(this.#backoff.next(), this.#stopped.promise);
    else this.#backoff.reset();
  }

  #timer(session: Session, ms: number): NodeJS.Timeout {
    const due = (): void => {
      if (ms > TIMER_MAX_MS) this.#rollTimer = this.#timer(session, ms - TIMER_MAX_MS);
      else if (session === this.#current)
        neverRejects(this.#end('roll', `its ticket of ${formatDuration(this.#lifetimeMs)} expires`));
    };
    return setTimeout(due, Math.min(ms, TIMER_MAX_MS)).unref();
  }

  #keepReplaced(session: Session): void {
    const [oldest] = this.#replaced;
    if (this.#replaced.size >= REPLACED_MAX && oldest !== undefined) {
      this.#replaced.delete(oldest);
      neverRejects(oldest.leave());
    }
    this.#replaced.add(session);
  }

  /** Ends a replaced session: DOWN, running requests, LEFT. The agent continues meanwhile. */
  async #retire(session: Session, drainMs: number): Promise<void> {
    if (!this.#replaced.has(session)) return; // more recent sessions have taken its place in #replaced, so it ended already
    session.change({ state: 'DOWN', leaving: 'new-session' });
    await settlesWithin(drainMs, Promise.race([session.drain(), this.#stopped.promise]));
    if (this.#stop.signal.aborted) return; // the agent's own end does the rest
    await session.leave();
    this.#replaced.delete(session);
  }

  #all(): Session[] {
    return [...new Set([...this.#replaced, ...(this.#current === undefined ? [] : [this.#current])])];
  }

  #halt(): void {
    this.#stop.abort();
    this.#stopped.settle();
    clearTimeout(this.#rollTimer);
  }

  /**
   * Call when the agent begins to end: no session follows, and none accepts new requests.
   * @param reason reason for the registry
   */
  down(reason?: string): void {
    this.#halt();
    const why = reason === undefined ? {} : { leaving: reason };
    for (const session of this.#all()) session.change({ state: 'DOWN', ...why });
  }

  /** Resolves when no request runs any more. */
  async drain(): Promise<void> {
    await Promise.all(this.#all().map((session) => session.drain()));
  }

  async leaveLogTail(tail: Uint8Array, signal: AbortSignal): Promise<void> {
    await this.#current?.leaveLogTail(tail, signal);
  }

  /** Hands back the requests that the engine will never answer, so that other nodes may continue them. */
  giveUp(): void {
    for (const session of this.#all()) session.giveUp();
  }

  /**
   * Publishes LEFT. Resolves when it is acknowledged, or 2 s later. False if a gateway of the current session does not
   * have it.
   */
  async leave(): Promise<boolean> {
    this.down();
    const { current } = this;
    const [acknowledged] = await Promise.all([
      current?.leave() ?? true,
      ...this.#all().map((session) => session.leave()),
    ]);
    return acknowledged;
  }
}
