import fc from 'fast-check';
import { expect, test } from 'vitest';
import { GpuShare, type RequestGpuShare } from '../../../shared/usage/gpu-share.ts';

test('a request alone has the whole node, two at once have half of it each', () => {
  const share = new GpuShare();
  const first = share.begin(4, 1_000);
  const second = share.begin(4, 2_000);
  first.end(4_000);
  first.end(9_000);
  expect(first.at(9_000)).toBe(4 * (1_000 + 1_000));
  expect(second.at(5_000)).toBe(4 * (1_000 + 1_000));
  expect(share.begin(0, 5_000).at(6_000)).toBe(0);
});

test('the shares of all requests are the time in which the node worked, times its GPUs', () => {
  const step = fc.record({ wait: fc.nat(1_000), end: fc.boolean(), which: fc.nat() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const share = new GpuShare();
      const running: RequestGpuShare[] = [];
      const ended: RequestGpuShare[] = [];
      let [now, busy] = [0, 0];
      for (const { wait, end, which } of steps) {
        now += wait;
        if (running.length > 0) busy += wait;
        const [one] = end && running.length > 0 ? running.splice(which % running.length, 1) : [];
        if (one === undefined) running.push(share.begin(8, now));
        else {
          one.end(now);
          ended.push(one);
        }
      }
      const sum = [...running, ...ended].reduce((all, one) => all + one.at(now), 0);
      expect(sum).toBeCloseTo(8 * busy, 3);
    }),
  );
});
