import { expect, it } from 'vitest';
import { GpuMonitor, gpuState } from '../../../agent/life/gpu-monitor.ts';
import type { GpuUse } from '../../../shared/deployment/order-reply.ts';
import type { GpuState } from '../../../shared/lattice/node-record.ts';

const gpu = (power_w: number, more: Partial<GpuUse> = {}): GpuUse => ({
  ...{ use: 0.5, memory_used_mib: 60_000, memory_total_mib: 81_920, temperature_c: 60, power_w },
  ...more,
});

it('rounds means over the GPUs, and takes the temperature of the hottest', () => {
  expect(gpuState([gpu(400), gpu(306, { temperature_c: 71, use: 0.94, memory_used_mib: 61_000 })])).toEqual({
    ...{ use: 0.7, power_w: 350, memory_used_mib: 60_416, temperature_c: 70 },
  });
  expect(gpuState([gpu(400, { use: null }), { use: null, memory_used_mib: null, memory_total_mib: null }])).toEqual({
    ...{ power_w: 400, memory_used_mib: 60_416, temperature_c: 60 },
  });
});

it('publishes a change of more than noise, at most once in ten minutes', async () => {
  let now = 0;
  let gpus: GpuUse[] | null = [gpu(400)];
  const published: GpuState[] = [];
  const monitor = new GpuMonitor({
    reader: { read: async () => gpus, last: null },
    publish: (state) => published.push(state),
    now: () => now,
  });
  const measure = async (at: number, power: number) => {
    now = at;
    gpus = [gpu(power)];
    await monitor.measure();
    return published.length;
  };
  expect(await measure(0, 400)).toBe(1);
  expect(await measure(60_000, 100), 'too soon').toBe(1);
  expect(await measure(599_999, 100), 'too soon').toBe(1);
  expect(await measure(600_000, 100)).toBe(2);
  expect(await measure(1_300_000, 108), 'noise').toBe(2);
  gpus = null;
  await monitor.measure();
  gpus = [];
  await monitor.measure();
  expect(published.map(({ power_w }) => power_w)).toEqual([400, 100]);
});

it('runs no tool for a page before it is opened', () => {
  let reads = 0;
  const reader = {
    last: null,
    read: async () => {
      reads++;
      return null;
    },
  };
  const monitor = new GpuMonitor({ reader, publish: () => {}, now: () => 0 });
  expect(monitor.current).toEqual([]);
  expect(reads).toBe(0);
  monitor.open();
  expect(monitor.current).toEqual([]);
  expect(reads).toBe(2);
  monitor.close();
});
