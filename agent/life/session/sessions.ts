/**
 * The sessions of one agent, one after the other: the agent and its engine outlive them. A session that ends while its
 * agent lives is followed by a new one, with a key of its own; where an engine serves, the new one serves before the old
 * one goes.
 */

import { formatDuration } from '../../config/duration.ts';
import { AdmissionRefusedError } from '../../tunnel/admission.ts';
import type { TunnelRefusal } from '../../tunnel/types.ts';
import { Deferred, settlesWithin } from '../deferred.ts';
import type { NodeFacts, RecordChange, SessionRecord } from './record.ts';
import type { Session } from './session.ts';

interface SessionEvents {
  /** No gateway will have this session, nor another of this agent. */
  onRefused(refusal: TunnelRefusal): void;
  /** The session has ended, as every gateway that can be asked says. */
  onOver(why: string): void;
}

/** Leave to be a session. */
export interface GrantedAdmission {
  /** How long its ticket counts. Infinity: for ever. */
  lifetimeMs: number;
  /** Called once, at once. */
  create(first: SessionRecord, events: SessionEvents): Session;
}

interface SessionsOptions {
  facts: NodeFacts;
  /** Tries until it has leave; throws AdmissionRefusedError, or anything when `signal` is aborted. */
  admit(signal: AbortSignal): Promise<GrantedAdmission>;
  /** The session that speaks for this agent from now on. */
  onCurrent(session: Session): void;
  /** No gateway admits this agent any more. */
  onRefused(refusal: TunnelRefusal): void;
  log(line: string): void;
  /** 0 ≤ x < 1. */
  random(): number;
}

/** Part of a ticket's life after which its session is followed by another: the rest is for gateways that are away. */
const ROLL_AT = 0.9;
/** Agents that were admitted together do not come back together. */
const ROLL_SPREAD = 0.05;
/** A roll that is refused (the join token was revoked, say) is tried again after this part of the ticket's life. */
const ROLL_AGAIN = 0.03;
/** setTimeout fires at once above 2^31 - 1 ms. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/** The one that follows is waited for so long before the old one drains all the same. */
const OVERLAP_MS = 10_000;

/** How often it is looked whether the new session has met other agents. */
const LOOK_MS = 100;
/** From there its record is with all of them, also where a message was lost, and with every isolate of the gateways. */
const NEWS_MS = 3_000;

/** Requests of a session that has been followed may run on for this long. */
const FORMER_DRAIN_MS = 600_000;
/** Those of one without an engine have only their last bytes to send. */
const IDLE_DRAIN_MS = 2000;

/** A session that lasted this long did not end because of what this agent does; younger ones are followed ever later. */
const LASTING_MS = 60_000;
const AGAIN_MIN_MS = 250;
const AGAIN_MAX_MS = 60_000;

/** Wait before the next try after an error that is not a gateway's refusal. */
const UNFORESEEN_MS = 2000;

/** Followed sessions that still drain: each keeps its tunnels. */
const FORMER_MAX = 4;

/** `idle`: nothing is served any more. `over`: the session counts no more. `roll`: it counts for a while yet. */
type Follow = 'first' | 'idle' | 'over' | 'roll';

export class Sessions {
  readonly #options: SessionsOptions;
  readonly #stop = new AbortController();
  readonly #stopped = new Deferred<void>();
  readonly #former = new Set<Session>();
  #facts: NodeFacts;
  #state: 'JOIN' | 'SERVING' = 'JOIN';
  #current: Session | undefined;
  /** Of the current session's ticket. */
  #lifetimeMs = Number.POSITIVE_INFINITY;
  /** The current session counts no more: it is kept for its running requests until the next is there. */
  #over = false;
  #since = 0;
  #short = 0;
  #joining = false;
  #rollTimer: NodeJS.Timeout | undefined;

  constructor(options: SessionsOptions) {
    this.#options = options;
    this.#facts = options.facts;
  }

  get current(): Session | undefined {
    return this.#current;
  }

  /** What the current session says, or will say when it is there. */
  get state(): 'JOIN' | 'SERVING' {
    return this.#state;
  }

  get facts(): NodeFacts {
    return this.#facts;
  }

  get inFlight(): number {
    return this.#all().reduce((sum, { inFlight }) => sum + inFlight, 0);
  }

  /** Joins for the first time. Resolves when admitted or refused, or when the agent begins to leave. */
  open(): Promise<void> {
    return this.#follow('first');
  }

  /** Said by the current session and by those that come after it. */
  change({ state, ...facts }: RecordChange): void {
    this.#facts = { ...this.#facts, ...facts };
    if (state === 'SERVING') this.#state = state;
    this.#current?.change({ ...facts, ...(state === undefined ? {} : { state }) });
  }

  /**
   * What this session served is gone: DOWN, LEFT, and a new session that waits for something to serve. What runs may go on for
   * `drainMs`; resolves when the old session has left.
   */
  async becomeIdle(why: string, change: Pick<RecordChange, 'labels'> = {}, drainMs = IDLE_DRAIN_MS): Promise<void> {
    this.#state = 'JOIN';
    this.#facts = { ...this.#facts, ...change, models: [] };
    await this.#end('idle', why, drainMs);
  }

  #end(how: Follow, why: string, drainMs = IDLE_DRAIN_MS): Promise<void> {
    const ending = this.#current;
    if (this.#stop.signal.aborted || ending === undefined) return Promise.resolve();
    this.#options.log(`session ${ending.id} ends: ${why}; a new one follows`);
    this.#over ||= how === 'over';
    let left = Promise.resolve();
    if (how === 'idle') {
      this.#current = undefined;
      left = this.#retire(ending, drainMs);
    }
    void this.#follow(how);
    return left;
  }

  /** One at a time: what the new session shall say is read when it is there. */
  async #follow(how: Follow): Promise<void> {
    if (this.#joining || this.#stop.signal.aborted) return;
    this.#joining = true;
    const { signal } = this.#stop;
    clearTimeout(this.#rollTimer);
    if (how === 'idle' || how === 'over') await this.#pause();
    try {
      const admitted = await this.#options.admit(signal);
      this.#joining = false; // the new session may end in the same breath
      if (!signal.aborted) this.#succeed(admitted);
    } catch (error) {
      this.#joining = false;
      if (signal.aborted) return;
      if (error instanceof AdmissionRefusedError) return this.#notAdmitted(how, error);
      // Not foreseen: the engine that runs is worth more than the session that could not follow.
      if (how === 'first') throw error;
      this.#options.log(`no new session: ${error instanceof Error ? error.message : String(error)}`);
      await settlesWithin(UNFORESEEN_MS, this.#stopped.promise);
      void this.#follow(how);
    }
  }

  #notAdmitted(how: Follow, { refusal, message }: AdmissionRefusedError): void {
    // While a session counts it is kept: its ticket is valid whatever became of the join token.
    if (how !== 'roll' || this.#current === undefined || this.#over) return this.#options.onRefused(refusal);
    this.#options.log(`no new session yet: ${message}`);
    this.#rollTimer = this.#timer(this.#current, ROLL_AGAIN * this.#lifetimeMs);
  }

  #succeed({ create, lifetimeMs }: GrantedAdmission): void {
    const before = this.#current;
    const session = create(
      { ...this.#facts, state: 'JOIN', version: 0 },
      {
        onRefused: (refusal) => {
          if (session === this.#current) this.#options.onRefused(refusal);
        },
        onOver: (why) => {
          if (session === this.#current) void this.#end('over', why);
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
    this.#former.add(before);
    void this.#overlap(session, before, over).then(() => this.#retire(before, FORMER_DRAIN_MS));
  }

  /** Both serve until gateways and other agents know the new one: who has only heard that the old one goes has nowhere to ask. */
  async #overlap(session: Session, before: Session, over: boolean): Promise<void> {
    const stopped = this.#stopped.promise;
    await settlesWithin(OVERLAP_MS, Promise.race([session.stored, stopped]));
    if (over) return;
    for (let waited = 0; before.peers > 0 && session.peers === 0 && waited < OVERLAP_MS; waited += LOOK_MS) {
      if (await settlesWithin(LOOK_MS, stopped)) return;
    }
    await settlesWithin(NEWS_MS, stopped);
  }

  /** Something that ends every session at once must not make the registry grow by one session per round trip. */
  async #pause(): Promise<void> {
    this.#short = performance.now() - this.#since < LASTING_MS ? this.#short + 1 : 0;
    const ms = Math.min(AGAIN_MAX_MS, AGAIN_MIN_MS * 2 ** this.#short) * (0.5 + this.#options.random());
    if (this.#short > 0) await settlesWithin(ms, this.#stopped.promise);
  }

  #timer(session: Session, ms: number): NodeJS.Timeout {
    const due = (): void => {
      if (ms > TIMER_MAX_MS) this.#rollTimer = this.#timer(session, ms - TIMER_MAX_MS);
      else if (session === this.#current)
        void this.#end('roll', `its ticket of ${formatDuration(this.#lifetimeMs)} runs out`);
    };
    return setTimeout(due, Math.min(ms, TIMER_MAX_MS)).unref();
  }

  /** DOWN, what runs, LEFT; beside the life of the agent. */
  async #retire(session: Session, drainMs: number): Promise<void> {
    const [oldest] = this.#former;
    if (this.#former.size > FORMER_MAX && oldest !== undefined) {
      this.#former.delete(oldest);
      void oldest.leave();
    }
    this.#former.add(session);
    session.change({ state: 'DOWN', leaving: 'new-session' });
    await settlesWithin(drainMs, Promise.race([session.drain(), this.#stopped.promise]));
    if (this.#stop.signal.aborted) return; // the agent's own end says the rest
    await session.leave();
    this.#former.delete(session);
  }

  #all(): Session[] {
    return [...new Set([...this.#former, ...(this.#current === undefined ? [] : [this.#current])])];
  }

  #halt(): void {
    this.#stop.abort();
    this.#stopped.settle();
    clearTimeout(this.#rollTimer);
  }

  /** The agent begins to leave: no session follows any more, and none takes new requests. `reason`: why, for the registry. */
  down(reason?: string): void {
    this.#halt();
    const why = reason === undefined ? {} : { leaving: reason };
    for (const session of this.#all()) session.change({ state: 'DOWN', ...why });
  }

  /** Resolves when nothing runs any more. */
  async drain(): Promise<void> {
    await Promise.all(this.#all().map((session) => session.drain()));
  }

  async leaveLogTail(tail: Uint8Array, signal: AbortSignal): Promise<void> {
    await this.#current?.leaveLogTail(tail, signal);
  }

  /** What runs will never be answered here: other nodes may. */
  giveUp(): void {
    for (const session of this.#all()) session.giveUp();
  }

  /** LEFT, acknowledged or 2 s later. False: a gateway of the current session does not have it. */
  async leave(): Promise<boolean> {
    this.down();
    const { current } = this;
    const [told] = await Promise.all([current?.leave() ?? true, ...this.#all().map((session) => session.leave())]);
    return told;
  }
}
