import { expect, test } from 'vitest';
import { GpuUseReader } from '../../../agent/host/gpu-use.ts';
import type { RunTool } from '../../../agent/host/run-tool.ts';

const LISTED = ['GPU-aaaa, 87, 60211, 81920', 'GPU-bbbb, 3, 512, 81920', 'GPU-cccc, [N/A], [N/A], 81920', ''].join(
  '\n',
);

/** Counts its runs. */
function tool(stdout: string | undefined): { run: RunTool; runs: () => number } {
  let runs = 0;
  const run: RunTool = async () => {
    runs++;
    return stdout === undefined ? { ok: false, reason: 'no nvidia-smi here', absent: true } : { ok: true, stdout };
  };
  return { run, runs: () => runs };
}

test('the use of the GPUs that this job may use; what the driver does not tell is null', async () => {
  const { run } = tool(LISTED);
  expect(await new GpuUseReader(run, { CUDA_VISIBLE_DEVICES: '0,2' }, () => 0).read()).toEqual([
    { use: 0.87, memory_used_mib: 60_211, memory_total_mib: 81_920 },
    { use: null, memory_used_mib: null, memory_total_mib: 81_920 },
  ]);
});

test('several viewers share one answer for two seconds, and a node without the tool is not asked each time', async () => {
  let now = 0;
  const { run, runs } = tool(LISTED);
  const reader = new GpuUseReader(run, {}, () => now);
  expect(await Promise.all([reader.read(), reader.read()])).toHaveLength(2);
  now = 1_999;
  await reader.read();
  expect(runs()).toBe(1);
  now = 2_000;
  expect(await reader.read()).toHaveLength(3);
  expect(runs()).toBe(2);
  const absent = tool(undefined);
  const none = new GpuUseReader(absent.run, {}, () => now);
  expect(await none.read()).toBeNull();
  now += 30_000;
  expect(await none.read()).toBeNull();
  expect(absent.runs()).toBe(1);
});
