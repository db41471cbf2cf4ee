/** An honest node next to hostile ones: it never loses its socket because of them. */
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'vitest';
import { promise } from '../patience.ts';
import { chatBody } from '../test-cluster.ts';
import type { Bench, TunnelBench } from './tunnel-bench.ts';

/** A suspected node that speaks is trusted before. */
const SUSPECTED_MS = 5_000;
const AGAIN_MS = 500;

export class Neighbour {
  readonly bench: Bench;
  readonly #shop: TunnelBench;
  /** Expected connections on its path: one, and those that the test caused. */
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
   * Expects an answer over the same socket as before. No request waits in this gateway, so a client asks again: a node
   * of a slow machine may be suspected until it speaks.
   */
  async serves(): Promise<void> {
    const until = performance.now() + promise(SUSPECTED_MS);
    let response = await this.ask();
    while (response.status === 503 && performance.now() < until) {
      await response.body?.cancel();
      await delay(AGAIN_MS);
      response = await this.ask();
    }
    expect(response.status, await response.text()).toBe(200);
    expect(this.bench.path.connections).toBe(this.#connections);
  }

  /** The test cut its path: from now on the current socket must stay. */
  reconnected(): void {
    this.#connections = this.bench.path.connections;
  }
}
