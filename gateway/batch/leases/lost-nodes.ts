import type { Ledger } from '../../../shared/batch/ledger.ts';
import type { View } from '../../registry/snapshot.ts';

/** A node whose line is lost keeps its leases for so long: it comes back with the results. */
const LOST_MS = 15_000;

/** Nodes with leases that the registry does not see connected. */
export class LostNodes {
  /** By session, since when. At most as many as there are leases. */
  readonly #since = new Map<string, number>();

  /** Ends the leases of nodes that have left, and of those that did not come back. */
  release(ledger: Ledger, view: Pick<View, 'nodes'>, nowMs: number): void {
    const holders = new Set(ledger.leases.map(({ lease }) => lease.node));
    for (const node of this.#since.keys()) if (!holders.has(node)) this.#since.delete(node);
    for (const node of holders) {
      const entry = view.nodes.get(node);
      // A registry that is starting knows no session: unknown is not gone.
      // JOIN is a node without an engine, which runs functions.
      const works = entry?.state === 'SERVING' || entry?.state === 'JOIN';
      const present = entry === undefined || (entry.connected && !entry.suspected && works);
      if (present) {
        this.#since.delete(node);
        continue;
      }
      const since = this.#since.get(node) ?? nowMs;
      this.#since.set(node, since);
      if (entry.state === 'LEFT' || nowMs - since >= LOST_MS) ledger.releaseNode(node);
    }
  }
}
