/** Strikes one node after the other, some seconds apart, and records it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { errorText } from '../../shared/text/error-text.ts';
import type { Fault } from './faults.ts';
import type { Fleet } from './fleet.ts';
import type { Replica } from './replica.ts';

export interface Strike {
  /** Epoch milliseconds. */
  at: number;
  /** When it served again; NaN: never. */
  until: number;
  replica: string;
  fault: string;
}

interface VictimsOptions {
  fleet: Fleet;
  faults: readonly Fault[];
  random: () => number;
  /** Milliseconds between two strikes. */
  every: readonly [least: number, most: number];
  /** Maximum number of nodes with a fault at the same time. */
  atOnce: number;
}

/**
 * A node that does not serve within this time after its fault counts as lost by OpenTela, not by the fault. Slurm
 * delays a requeued job.
 */
const BACK_MS = 150_000;

export class Victims {
  readonly strikes: Strike[] = [];
  /** Faults that did not work as planned, as messages. */
  readonly troubles: string[] = [];
  readonly #options: VictimsOptions;
  readonly #suffering = new Map<Replica, Promise<void>>();
  readonly #stopped = new AbortController();
  #deck: Fault[] = [];
  #running: Promise<void> | undefined;

  constructor(options: VictimsOptions) {
    this.#options = options;
  }

  start(): void {
    this.#running = this.#run();
  }

  /** Stops striking; resolves when all nodes serve again. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#running;
    await Promise.all(this.#suffering.values());
  }

  async #run(): Promise<void> {
    const { every, random } = this.#options;
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      await sleep(every[0] + random() * (every[1] - every[0]), undefined, { signal }).catch(() => undefined);
      if (!signal.aborted) this.#strike();
    }
  }

  #strike(): void {
    const { fleet, random, atOnce } = this.#options;
    if (this.#suffering.size >= atOnce) return;
    const fault = this.#draw();
    const well = fleet.replicas.filter(
      (replica) => !this.#suffering.has(replica) && fleet.serves(replica) && fault?.suits(replica),
    );
    const replica = well[Math.floor(random() * well.length)];
    if (replica === undefined || fault === undefined) return;
    const done = this.#suffer(replica, fault).finally(() => this.#suffering.delete(replica));
    this.#suffering.set(replica, done);
  }

  async #suffer(replica: Replica, fault: Fault): Promise<void> {
    const { fleet, random } = this.#options;
    const strike: Strike = { at: Date.now(), until: Number.NaN, replica: replica.name, fault: fault.name };
    this.strikes.push(strike);
    const { name, outOfReach } = fault;
    const spell = {
      fault: name,
      outOfReach,
      from: strike.at,
      over: Number.POSITIVE_INFINITY,
      until: Number.POSITIVE_INFINITY,
    };
    replica.spells.push(spell);
    const over = await fault.strike(replica, random).then(
      () => true,
      (error: unknown) => {
        this.troubles.push(`${replica.name}, ${fault.name}: ${errorText(error)}`);
        return false;
      },
    );
    spell.over = Date.now();
    const served = over && (await fleet.untilServes(replica, BACK_MS));
    spell.until = Date.now();
    if (served) strike.until = spell.until;
  }

  /** From a shuffled deck with one of each kind on top, so that a short run has every kind, too. */
  #draw(): Fault | undefined {
    const { faults, random } = this.#options;
    if (this.#deck.length === 0) {
      const all = faults.flatMap((fault) => Array.from({ length: fault.weight }, (_, copy) => ({ fault, copy })));
      this.#deck = all
        .map(({ fault, copy }) => ({ fault, at: copy + random() }))
        .sort((a, b) => b.at - a.at)
        .map(({ fault }) => fault);
    }
    return this.#deck.pop();
  }
}
