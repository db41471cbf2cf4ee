import { describe, expect, it } from 'vitest';
import { Saturation } from '../../../agent/engine/saturation.ts';

describe('an engine', () => {
  it('without any earlier waiting accepts all requests', () => {
    const engine = new Saturation();
    engine.observe({ running: 500, waiting: 0 });
    expect(engine.full(10_000, { maxWaiting: 0 })).toBeUndefined();
    expect(engine.split(700)).toEqual({ running: 700, waiting: 0 });
  });

  it('takes so many at once, where its operator says so', () => {
    const engine = new Saturation();
    expect(engine.full(3, { maxRunning: 4 })).toBeUndefined();
    expect(engine.full(4, { maxRunning: 4 })).toMatch(/4 requests/);
  });

  it('lets so many wait and no more, also those that it has not told of yet', () => {
    const engine = new Saturation();
    engine.observe({ running: 8, waiting: 1 });
    expect(engine.split(12)).toEqual({ running: 8, waiting: 4 });
    expect(engine.full(11, { maxWaiting: 4 })).toBeUndefined();
    expect(engine.full(12, { maxWaiting: 4 })).toMatch(/4 requests already wait/);
    expect(engine.full(7, { maxWaiting: 0 })).toBeUndefined();
    expect(engine.full(8, { maxWaiting: 0 })).toBeDefined();
  });

  it('that runs more than it could a while ago is asked for more again', () => {
    const engine = new Saturation();
    engine.observe({ running: 2, waiting: 30 }); // long prompts filled its cache
    expect(engine.full(32, { maxWaiting: 0 })).toBeDefined();
    engine.observe({ running: 20, waiting: 0 });
    expect(engine.full(32, { maxWaiting: 0 })).toBeUndefined();
  });
});
