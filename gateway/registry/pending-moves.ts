/**
 * Moves of model replicas that are not finished: the old node is unloaded when the new one serves. They are stored, so
 * that a move ends although the caller disconnects or the gateway restarts.
 */
import { DEPLOYMENT_LABEL, failedDeployment } from '../../shared/deployment/deployment-labels.ts';
import type { RegistryEntry } from '../../shared/lattice/node-record.ts';
import type { ObjectStorage, Sql } from '../platform/object-context.ts';

/** Maximum moves that wait at the same time. */
const MOVES_MAX = 256;
/** A new node that does not serve the model within this time is not waited for. The old node then continues. */
const MOVE_MAX_MS = 24 * 60 * 60_000;

export interface Move {
  model: string;
  /** Id of the deployment on the new node, and the node's provider. Other providers may use the same id. */
  deployment: string;
  provider: string;
  /** Id of the deployment on the old node, and the node's provider. */
  fromDeployment: string;
  fromProvider: string;
  /** Maximum milliseconds for which the old node waits for running requests. */
  drainMs: number;
}

export class PendingMoves {
  readonly #sql: Sql;
  /** The moves by the key of their new deployment. */
  readonly #moves = new Map<string, Move & { at: number }>();

  constructor({ sql }: ObjectStorage) {
    this.#sql = sql;
    sql.exec('CREATE TABLE IF NOT EXISTS moves (key TEXT PRIMARY KEY, at INTEGER NOT NULL, move TEXT NOT NULL)');
    for (const { at, move } of sql.exec<{ at: number; move: string }>('SELECT at, move FROM moves')) {
      const known = JSON.parse(move) as Move;
      this.#moves.set(keyOf(known), { ...known, at });
    }
  }

  /** False if too many moves wait. */
  add(move: Move, now: number): boolean {
    for (const [key, { at }] of this.#moves) if (now - at > MOVE_MAX_MS) this.#drop(key);
    if (this.#moves.size >= MOVES_MAX) return false;
    const key = keyOf(move);
    this.#sql.exec('INSERT OR REPLACE INTO moves (key, at, move) VALUES (?, ?, ?)', key, now, JSON.stringify(move));
    this.#moves.set(key, { ...move, at: now });
    return true;
  }

  /**
   * Returns the move that ends because this session serves its model. Drops the move of a deployment that failed: its
   * old node continues.
   */
  finishedBy(entry: RegistryEntry, now: number): Move | undefined {
    if (this.#moves.size === 0) return undefined;
    const { provider, labels, models, state } = entry;
    const failed = failedDeployment(labels);
    if (failed !== undefined) this.#drop(keyOf({ provider, deployment: failed.id }));
    const key = keyOf({ provider, deployment: labels[DEPLOYMENT_LABEL] ?? '' });
    const move = this.#moves.get(key);
    if (move === undefined || state !== 'SERVING') return undefined;
    if (!models.some((model) => model.id === move.model && model.state === 'ready')) return undefined;
    this.#drop(key);
    return now - move.at > MOVE_MAX_MS ? undefined : move;
  }

  #drop(key: string): void {
    if (this.#moves.delete(key)) this.#sql.exec('DELETE FROM moves WHERE key = ?', key);
  }
}

/** Neither a provider nor the id of a deployment contains a space. */
function keyOf({ provider, deployment }: Pick<Move, 'provider' | 'deployment'>): string {
  return `${provider} ${deployment}`;
}
