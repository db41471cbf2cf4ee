import type { Task } from '../world/tasks.ts';
import type { ServerSpec } from '../world/world.ts';

/** Most prefixes that a server still holds; more are rare while contexts are long. */
const PREFIXES_HELD = 8;

export const ASLEEP = 0;
export const WAKING = 1;
export const IDLE = 2;
export const SWITCHING = 3;
export const BUSY = 4;

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
  /** Seconds of this slot. */
  busyS = 0;
  awakeS = 0;
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

  remember(prefix: number): void {
    if (prefix < 0 || this.holdsPrefix(prefix)) return;
    this.#prefixes[this.#nextPrefix] = prefix;
    this.#nextPrefix = (this.#nextPrefix + 1) % PREFIXES_HELD;
  }

  /** Its memory is lost. */
  forget(): void {
    this.#prefixes.fill(-1);
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
