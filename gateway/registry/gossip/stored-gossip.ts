import type { GossipMemory } from '../../../shared/gossip/index.ts';
import type { Clock, ObjectStorage } from '../../platform/object-context.ts';

/** After a restart agents have this long to reconnect before peers are asked about them. */
const RECONNECT_MS = 40_000;

/** Gossip's memory is written this long after it changed. */
const REMEMBER_MS = 250;
const MEMORY = 'gossip';

/** The part of gossip's state that outlives a sleep of its object. */
export class StoredGossip {
  readonly #storage: ObjectStorage;
  readonly #clock: Clock;
  #timer: (() => void) | undefined;

  constructor(storage: ObjectStorage, clock: Clock) {
    this.#storage = storage;
    this.#clock = clock;
  }

  /**
   * Reads the stored memory. `slept`: true if sockets survived. If none survived, the object was restarted, so the
   * sockets of delegates and tunnels are closed even if no close event arrived. `open`: sessions that had a tunnel.
   */
  read(slept: boolean, open: Iterable<string>, now: number): GossipMemory | undefined {
    const memory = this.#storage.kv.get<GossipMemory>(MEMORY);
    if (memory === undefined || slept) return memory;
    const known = new Set(memory.absent.map(([session]) => session));
    const missing = [...open].filter((session) => !known.has(session));
    return {
      ...memory,
      absent: [...memory.absent, ...missing.map((session) => [session, now + RECONNECT_MS] as const)],
    };
  }

  /** Writes with a delay. Calls `memory` at the time of the write. */
  changed(memory: () => GossipMemory): void {
    this.#timer ??= this.#clock.after(REMEMBER_MS, () => {
      this.#timer = undefined;
      this.#storage.kv.put(MEMORY, memory());
    });
  }
}
