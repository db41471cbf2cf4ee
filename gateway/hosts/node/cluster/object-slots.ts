/**
 * Which process owns which objects. Objects fall into SLOTS slots by their names, and a process owns slots. A claim
 * takes only slots without a running owner. Two processes that both believe to own a slot cannot both write: see
 * turn-log.ts.
 */
import { createHash } from 'node:crypto';
import type { Connection } from '../postgresql/postgres-pool.ts';

export const SLOTS = 256;
/** Of the slots that a process has too many, it gives back one in this number at each heartbeat. */
const GIVEN_BACK_SHARE = 8;

/** The slot of an object by its key `CLASS/NAME`. */
export function slotOf(key: string): number {
  return createHash('sha256').update(key).digest().readUInt8(0);
}

interface SlotOwner {
  owner: string;
  epoch: number;
}

export class ObjectSlots {
  readonly #connection: Connection;
  readonly #me: string;
  /** By slot; at most SLOTS. */
  #owners = new Map<number, SlotOwner>();

  /** @param me incarnation of this process */
  constructor(connection: Connection, me: string) {
    this.#connection = connection;
    this.#me = me;
  }

  async create(): Promise<void> {
    const query = `INSERT INTO object_slots (slot) SELECT generate_series(0, ${SLOTS - 1}) ON CONFLICT DO NOTHING`;
    await this.#connection.query(query);
  }

  /** Incarnation of the slot's owner, as of the last reading. Undefined: none. */
  ownerOf(slot: number): string | undefined {
    return this.#owners.get(slot)?.owner;
  }

  owned(): number[] {
    return [...this.#owners].flatMap(([slot, { owner }]) => (owner === this.#me ? [slot] : []));
  }

  /** Claims free slots until this process owns `share` of them, and reads which process owns which slot. */
  async claim(share: number): Promise<void> {
    const wanted = share - this.owned().length;
    if (wanted > 0) {
      const query = `UPDATE object_slots s SET owner = $1, epoch = s.epoch + 1
        FROM (SELECT o.slot FROM object_slots o
              WHERE NOT EXISTS (SELECT 1 FROM gateway_processes p WHERE p.incarnation = o.owner AND p.ended IS NULL)
              LIMIT $2 FOR UPDATE OF o SKIP LOCKED) free
        WHERE s.slot = free.slot`;
      await this.#connection.query(query, [this.#me, wanted]);
    }
    await this.read();
  }

  async read(): Promise<void> {
    const { rows } = await this.#connection.query(
      'SELECT slot, owner, epoch FROM object_slots WHERE owner IS NOT NULL',
    );
    this.#owners = new Map(
      rows.map(([slot, owner, epoch]) => [Number(slot), { owner: String(owner), epoch: Number(epoch) }]),
    );
  }

  /** Slots that this process should give back now, so that it owns `share` of them in the end: all, if it is 0. */
  excess(share: number): number[] {
    const owned = this.owned();
    if (share === 0) return owned;
    const tooMany = owned.length - share;
    return tooMany <= 0 ? [] : owned.slice(-Math.ceil(tooMany / GIVEN_BACK_SHARE));
  }

  /** Gives slots back. Their objects must have been dropped before. */
  async release(slots: readonly number[]): Promise<void> {
    if (slots.length === 0) return;
    const query = 'UPDATE object_slots SET owner = NULL WHERE owner = $1 AND slot = ANY($2::smallint[])';
    await this.#connection.query(query, [this.#me, slots]);
    for (const slot of slots) this.#owners.delete(slot);
  }

  /** Forgets all owners: this process has lost its slots. */
  forget(): void {
    this.#owners.clear();
  }
}
