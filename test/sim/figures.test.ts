import { describe, expect, it } from 'vitest';
import { convergence, falseSuspicions, idle, killed, rejoining, republishing, silentHang } from './figures.ts';

/**
 * The promises of docs/design/gossip.md, with fewer nodes and trials than `npm run sim`; the same seed always gives the
 * same result.
 */
const seed = 3;

describe('what an owner says', () => {
  it.each([8, 32, 128])(
    'is everywhere among %i nodes within 10 ms for half, 50 ms for 95 %, a second for all',
    (size) => {
      const { p50, p95, last, missed } = convergence({ seed, clusters: [size] }, 12);
      expect(missed).toBe(0);
      expect(p50).toBeLessThanOrEqual(10);
      expect(p95).toBeLessThanOrEqual(50);
      expect(last).toBeLessThanOrEqual(1000);
    },
  );

  it.each([8, 32, 128])(
    'is everywhere among %i nodes within 50 ms for 95 % and 3 s for all with 5 % of messages lost',
    (size) => {
      const { p95, last, missed } = convergence({ seed, clusters: [size], network: { loss: 0.05 } }, 25);
      expect(missed).toBe(0);
      expect(p95).toBeLessThanOrEqual(50);
      expect(last).toBeLessThanOrEqual(3000);
    },
  );

  it('reaches 95 % of four clusters through their gateway within 100 ms', () => {
    const { p95, missed } = convergence({ seed, clusters: [16, 16, 16, 16] }, 12);
    expect(missed).toBe(0);
    expect(p95).toBeLessThanOrEqual(100);
  });
});

describe('traffic', () => {
  it('of an idle node is at most 0.5 KB/s, the same at 10 and at 100, and its gateway hears at most 12 messages a minute', () => {
    const few = idle({ seed, clusters: [10] }, 20);
    const many = idle({ seed, clusters: [25, 25, 25, 25] }, 20);
    expect(few.max).toBeLessThanOrEqual(500);
    expect(many.max).toBeLessThanOrEqual(500);
    expect(many.mean / few.mean).toBeLessThan(1.2);
    expect(few.perGatewayMinute).toBeLessThanOrEqual(12);
    expect(many.perGatewayMinute).toBeLessThanOrEqual(12);
  });

  it('of 10 nodes that register anew every 3 s is at most 8 KB/s each, as new records or as new sessions', () => {
    expect(republishing({ seed, clusters: [10] }, 3000, 20).max).toBeLessThanOrEqual(8000);
    expect(rejoining({ seed, clusters: [10] }, 3000, 30).mean).toBeLessThanOrEqual(8000);
  });
});

describe('who is gone', () => {
  it.each([4, 16])('is unrouted within 4 s for 95 % of silent hangs in a cluster of %i', (size) => {
    const { p95, missed } = silentHang({ seed, clusters: [size] }, 12);
    expect(missed).toBe(0);
    expect(p95).toBeLessThanOrEqual(4000);
  });

  it('is unrouted within 0.1 s when its process was killed', () => {
    expect(killed({ seed, clusters: [16] }, 5).last).toBeLessThanOrEqual(100);
  });

  it('is not somebody who is healthy: no suspicion in 5 node-hours at 1 % loss', () => {
    const { nodeHours, suspected } = falseSuspicions({ seed, clusters: [20], network: { loss: 0.01 } }, 0.25);
    expect(nodeHours).toBe(5);
    expect(suspected).toBe(0);
  });
});
