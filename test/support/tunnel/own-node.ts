import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import { endAll } from '../processes.ts';
import { type Bench, openTunnelBench, type TunnelBench } from './tunnel-bench.ts';

/** One tunnel bench per test file, and in it for each test a node with a separate model. */
export class OwnNode {
  #shop: TunnelBench | undefined;
  #bench: Bench | undefined;
  #count = 0;

  constructor() {
    beforeAll(async () => {
      this.#shop = await openTunnelBench();
    });
    afterAll(endAll);
    beforeEach(async () => {
      this.#count++;
      this.#bench = await this.shop.addNode({ models: [this.model] });
    });
    afterEach(() => this.bench.close());
  }

  get model(): string {
    return `stand-in/${this.#count}`;
  }

  get shop(): TunnelBench {
    if (this.#shop === undefined) throw new Error('the workshop opens before the first test, not earlier');
    return this.#shop;
  }

  get bench(): Bench {
    if (this.#bench === undefined) throw new Error('a node joins before each test, not earlier');
    return this.#bench;
  }
}
