/** An honest node next to hostile ones: it never loses its socket because of them. */
import { expect } from 'vitest';
import { eventually } from '../processes.ts';
import { chatBody } from '../test-cluster.ts';
import type { Bench, TunnelBench } from './tunnel-bench.ts';

/**
 * A suspected node that answers is trusted again after this time. It applies to a session that is suspected for the
 * second time.
 */
const SUSPECTED_MS = 10_000;

export class Neighbour {
  readonly bench: Bench;
  readonly #shop: TunnelBench;
  /** Expected number of connections on the node's path: the first, and those that the test caused. */
  #connections = 1;

  private constructor(shop: TunnelBench, bench: Bench) {
    this.#shop = shop;
    this.bench = bench;
  }

  static async open(shop: TunnelBench): Promise<Neighbour> {
    return new Neighbour(shop, await shop.addNode({ models: ['neighbour'] }));
  }

  ask(): Promise<Response> {
    return this.#shop.ask('/v1/chat/completions', chatBody({ tokens: 3 }, { model: 'neighbour' }));
  }

  /**
   * Expects an answer over the same socket as before. No request waits in this gateway, so a client asks again: on a
   * slow machine an acknowledgment may come too late, and its node is suspected until it speaks.
   */
  async serves(): Promise<void> {
    let response = await this.ask();
    if (response.status === 503) {
      await response.body?.cancel();
      response = await eventually('the neighbour serves again', SUSPECTED_MS, async () => {
        const again = await this.ask();
        if (again.status !== 503) return again;
        await again.body?.cancel();
        return undefined;
      });
    }
    expect(response.status, await response.text()).toBe(200);
    expect(this.bench.path.connections).toBe(this.#connections);
  }

  /** Call after the test cut the node's path: from then on, the new socket must stay. */
  reconnected(): void {
    this.#connections = this.bench.path.connections;
  }
}
