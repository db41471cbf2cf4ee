/**
 * One member of the fleet: an agent, the engine that it runs, and the proxy between agent and gateway. Ends and returns
 * like a requeued job.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { startAgent } from '../support/agent.ts';
import { entrySchema, type JournalEntry } from '../support/engine/journal.ts';
import { freePort, type Managed } from '../support/processes.ts';
import { NODE } from '../support/where.ts';
import type { Door } from './door.ts';
import type { Programs } from './programs.ts';

export const MODEL = 'stand-in/chaos';
/** So high that only a request's `max_tokens` decides. */
export const TOKENS_MAX = 1_000_000;
/** An agent ends well within this time after its engine was killed. */
const END_MS = 30_000;

export interface ReplicaOptions {
  index: number;
  door: Door;
  token: string;
  programs: Programs;
  /** Directory of its engines' journals. */
  directory: string;
  slots: number;
  tokensPerSecond: number;
}

/**
 * The time of one fault, in epoch milliseconds: until it was `over`, and until the gateway routed to the node again.
 */
export interface Spell {
  fault: string;
  /** True if it was paused or cut off: requests there cannot be canceled meanwhile. */
  outOfReach: boolean;
  from: number;
  over: number;
  until: number;
}

export class Replica {
  readonly options: ReplicaOptions;
  readonly name: string;
  readonly spells: Spell[] = [];
  readonly journals: string[] = [];
  /** True if it must return after its end. */
  wanted = false;
  /** Epoch milliseconds at which the current agent was started. */
  startedAt = 0;
  enginePort = 0;
  #agent: Managed | undefined;

  constructor(options: ReplicaOptions) {
    this.options = options;
    this.name = `r${options.index}`;
  }

  get agent(): Managed | undefined {
    return this.#agent;
  }

  get running(): boolean {
    return this.#agent?.running === true;
  }

  async start(): Promise<void> {
    const { door, token, programs, directory, slots, tokensPerSecond } = this.options;
    this.wanted = true;
    const journal = join(directory, `${this.name}-${this.journals.length}.jsonl`);
    this.journals.push(journal);
    this.enginePort = await freePort();
    const flags = { port: this.enginePort, model: MODEL, tokens: TOKENS_MAX, rate: tokensPerSecond, slots, journal };
    const command = [
      NODE,
      programs.engine,
      ...Object.entries(flags).flatMap(([name, value]) => [`--${name}`, `${value}`]),
    ];
    this.startedAt = Date.now();
    this.#agent = await startAgent({
      main: programs.agent,
      gateways: [door.url],
      token,
      command,
      args: ['--label', `replica=${this.name}`],
    });
  }

  /** Starts it again `pauseMs` after its end, like a requeued job. */
  async restart(pauseMs: number): Promise<void> {
    const ended = this.#agent;
    try {
      await ended?.end(END_MS);
    } finally {
      await ended?.stop();
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
      if (this.wanted) await this.start();
    }
  }

  /** Ends it for good, without notice. */
  async kill(): Promise<void> {
    this.wanted = false;
    this.#agent?.signal('SIGKILL');
    await this.#agent?.exited;
    await this.#agent?.stop();
  }

  /** Process id of the current engine; undefined: none has started yet. */
  get enginePid(): number | undefined {
    return this.entries(this.journals.slice(-1)).find(({ what }) => what === 'up')?.pid;
  }

  entries(journals: readonly string[] = this.journals): JournalEntry[] {
    return journals.filter(existsSync).flatMap((path) =>
      readFileSync(path, 'utf8')
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => entrySchema.parse(JSON.parse(line))),
    );
  }

  /** Sets its engine's default behavior, which a request may override. */
  async control(behaviour: object): Promise<void> {
    await fetch(`http://127.0.0.1:${this.enginePort}/__control`, {
      method: 'POST',
      body: JSON.stringify({ behaviour }),
      signal: AbortSignal.timeout(2_000),
    });
  }
}
