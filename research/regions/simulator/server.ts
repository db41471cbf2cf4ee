import type { Task } from '../world/tasks.ts';
import type { ServerSpec } from '../world/world.ts';

/** Most prefixes that a server still holds; more are rare while contexts are long. */
const PREFIXES_HELD = 8;
/** Number of past tasks of its model that a server remembers: H_s of (10). */
export const HISTORY = 8;

export const ASLEEP = 0;
export const WAKING = 1;
export const IDLE = 2;
export const SWITCHING = 3;
export const BUSY = 4;
export const MIGRATING = 5;

/** A task in progress. */
export class Job {
  readonly task: Task;
  /** The next one in its server's queue. */
  next: Job | undefined;
  /** When it reached its server and began there, seconds; of the last attempt. */
  reachedS = 0;
  startedS = 0;
  /** Seconds in which its server loaded the model for it. */
  switchS = 0;
  /** Seconds that the server will take or took. */
  serviceS = 0;
  /** Share of the work that is left: below 1 after a migration. */
  left = 1;
  /** Seconds that earlier servers computed, and seconds of moving from them. */
  movedComputeS = 0;
  migrateS = 0;
  attempts = 0;

  constructor(task: Task) {
    this.task = task;
  }
}

/** One server: one task at a time, the others first come, first served. */
export class Server {
  readonly id: number;
  readonly region: number;
  readonly kind: number;
  readonly coldStartS: number;
  /** Index in `PHASES`. */
  phase: number = IDLE;
  /** False while its region has failed. */
  alive = true;
  /** Model that it holds or loads. */
  model: number;
  /** Model that it will hold at the end of its queue. */
  lastModel: number;
  running: Job | undefined;
  head: Job | undefined;
  tail: Job | undefined;
  queued = 0;
  /** When its current switch and service end; seconds. */
  freeS = 0;
  /** Seconds of work in the queue. */
  backlogS = 0;
  idleSinceS = 0;
  /** Timers with an older epoch are void. */
  epoch = 0;
  settledS = 0;
  /** Seconds of this slot; `activeS`: awake and not waking, so that it could serve or load. */
  busyS = 0;
  awakeS = 0;
  activeS = 0;
  /** Busy share of its active seconds in the last slot. */
  use = 0;
  /** Beginnings of the last tasks of its model and when they began, seconds; `past` of them, in a ring. */
  readonly pastPrefixes = new Int32Array(HISTORY).fill(-1);
  readonly pastS = new Float64Array(HISTORY);
  past = 0;
  readonly #prefixes = new Int32Array(PREFIXES_HELD).fill(-1);
  #nextPrefix = 0;

  constructor(id: number, spec: ServerSpec) {
    this.id = id;
    this.region = spec.region;
    this.kind = spec.kind;
    this.coldStartS = spec.coldStartS;
    this.model = spec.model;
    this.lastModel = spec.model;
  }

  /** True if it may get work: it is awake, or will be soon. */
  get open(): boolean {
    return this.alive && this.phase !== ASLEEP;
  }

  holdsPrefix(prefix: number): boolean {
    return prefix >= 0 && this.#prefixes.includes(prefix);
  }

  /** Remembers a task that begins. */
  remember(prefix: number, nowS: number): void {
    this.pastPrefixes[this.past % HISTORY] = prefix;
    this.pastS[this.past % HISTORY] = nowS;
    this.past++;
    if (prefix < 0 || this.holdsPrefix(prefix)) return;
    this.#prefixes[this.#nextPrefix] = prefix;
    this.#nextPrefix = (this.#nextPrefix + 1) % PREFIXES_HELD;
  }

  /** Its memory is lost. */
  forget(): void {
    this.#prefixes.fill(-1);
    this.past = 0;
  }

  push(job: Job): void {
    job.next = undefined;
    if (this.tail === undefined) this.head = job;
    else this.tail.next = job;
    this.tail = job;
    this.queued++;
  }

  shift(): Job | undefined {
    const job = this.head;
    if (job === undefined) return undefined;
    this.head = job.next;
    if (this.head === undefined) this.tail = undefined;
    job.next = undefined;
    this.queued--;
    return job;
  }
}
