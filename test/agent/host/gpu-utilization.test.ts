import { expect, test } from 'vitest';
import { GpuUseReader } from '../../../agent/host/gpu-utilization.ts';
import type { RunTool } from '../../../agent/host/run-tool.ts';

const LISTED = `GPU-aaaa, 87, 60211, 81920, Disabled
GPU-bbbb, 3, 512, 81920, Disabled
GPU-cccc, [N/A], [N/A], 81920, [N/A]
`;

/** A mock tool that counts its runs. */
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
  expect(absent.runs(), 'each of the three tools once').toBe(3);
});

/** Answers each tool by its first arguments; other tools do not exist. */
function tools(answers: Record<string, string>): RunTool {
  return async (file, args) => {
    const stdout = Object.entries(answers).find(([asked]) => `${file} ${args.join(' ')}`.startsWith(asked))?.[1];
    return stdout === undefined ? { ok: false, reason: `no ${file} here`, absent: true } : { ok: true, stdout };
  };
}

const read = (answers: Record<string, string>, env: Record<string, string> = {}) =>
  new GpuUseReader(tools(answers), env, () => 0).read();

// The format of driver 575's report: a slice has its number and memory there, and its UUID only in the listing.
const MIG = {
  'nvidia-smi --query-gpu': 'GPU-aaaa, [N/A], 300, 81920, Enabled\nGPU-bbbb, 50, 1024, 81920, Disabled\n',
  'nvidia-smi -q -x': `<nvidia_smi_log><gpu id="00000000:00:09.0"><mig_devices>
    <mig_device><index>0</index><gpu_instance_id>1</gpu_instance_id><fb_memory_usage><total>40448 MiB</total>
      <reserved>0 MiB</reserved><used>298 MiB</used><free>40151 MiB</free></fb_memory_usage></mig_device>
    <mig_device><index>1</index><gpu_instance_id>9</gpu_instance_id><fb_memory_usage><total>9728 MiB</total>
      <reserved>0 MiB</reserved><used>N/A</used><free>N/A</free></fb_memory_usage></mig_device>
    </mig_devices><uuid>GPU-aaaa</uuid><fb_memory_usage><total>81920 MiB</total><used>300 MiB</used></fb_memory_usage></gpu>
    <gpu id="00000000:00:0A.0"><mig_devices>None</mig_devices><uuid>GPU-bbbb</uuid></gpu></nvidia_smi_log>`,
  'nvidia-smi -L': `GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-aaaa)
  MIG 3g.40gb     Device  0: (UUID: MIG-1111)
  MIG 1g.10gb     Device  1: (UUID: MIG-2222)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-bbbb)`,
};

test('slices of a GPU tell their own memory; how busy one is no tool tells', async () => {
  const first = { use: null, memory_used_mib: 298, memory_total_mib: 40_448 };
  const second = { use: null, memory_used_mib: null, memory_total_mib: 9_728 };
  expect(await read(MIG)).toEqual([first, second, { use: 0.5, memory_used_mib: 1024, memory_total_mib: 81_920 }]);
  expect(await read(MIG, { CUDA_VISIBLE_DEVICES: 'MIG-2222' })).toEqual([second]);
  const { 'nvidia-smi -q -x': _, ...without } = MIG;
  expect(await read(without)).toHaveLength(2);
});

test('power and temperature of NVIDIA GPUs, as far as the driver tells them', async () => {
  const listed = 'GPU-aaaa, 87, 60211, 81920, 412.08, 61, Disabled\nGPU-bbbb, 3, 512, 81920, [N/A], [N/A], Disabled\n';
  expect(await read({ 'nvidia-smi --query-gpu': listed })).toEqual([
    { use: 0.87, memory_used_mib: 60_211, memory_total_mib: 81_920, power_w: 412.08, temperature_c: 61 },
    { use: 0.03, memory_used_mib: 512, memory_total_mib: 81_920 },
  ]);
  const odd = 'GPU-aaaa, 87, 1, 2, 1e9, -4, Disabled\nGPU-bbbb, 87, 1, 2, 999999, 99999, Disabled\n';
  const bare = { use: 0.87, memory_used_mib: 1, memory_total_mib: 2 };
  expect(await read({ 'nvidia-smi --query-gpu': odd })).toEqual([bare, bare]);
});

test('a slice has the temperature of its GPU, and no power, which it shares', async () => {
  const query = 'GPU-aaaa, [N/A], 300, 81920, 250.00, 47, Enabled\nGPU-bbbb, 50, 1024, 81920, 90.5, 40, Disabled\n';
  expect(await read({ ...MIG, 'nvidia-smi --query-gpu': query })).toMatchObject([
    { memory_used_mib: 298, temperature_c: 47 },
    { memory_total_mib: 9_728, temperature_c: 47 },
    { use: 0.5, power_w: 90.5, temperature_c: 40 },
  ]);
  expect((await read({ ...MIG, 'nvidia-smi --query-gpu': query }))?.[0]).not.toHaveProperty('power_w');
});

const GIB = 1024 ** 3;
const card = (use: string, used: number, id: string) => ({
  'Unique ID': id,
  'GPU use (%)': use,
  'VRAM Total Memory (B)': String(64 * GIB),
  'VRAM Total Used Memory (B)': String(used * GIB),
});
const ROCM = {
  'rocm-smi --showuse': JSON.stringify({
    card10: card('7', 1, '0xa'),
    card0: card('99', 32, '0x1b'),
    card1: card('N/A', 0, 'N/A'),
    system: { 'Driver version': '6.8.5' },
  }),
};

test('AMD GPUs are told by rocm-smi, in the order of their numbers, as far as ROCm shows them', async () => {
  const [busy, silent, last] = [
    { use: 0.99, memory_used_mib: 32_768, memory_total_mib: 65_536 },
    { use: null, memory_used_mib: 0, memory_total_mib: 65_536 },
    { use: 0.07, memory_used_mib: 1_024, memory_total_mib: 65_536 },
  ];
  expect(await read(ROCM)).toEqual([busy, silent, last]);
  expect(await read(ROCM, { ROCR_VISIBLE_DEVICES: '0,2', CUDA_VISIBLE_DEVICES: '0,2' })).toEqual([busy, last]);
  expect(await read(ROCM, { ROCR_VISIBLE_DEVICES: 'GPU-a' })).toEqual([last]);
});

test.each([
  [
    'an MI250',
    {
      'Average Graphics Package Power (W)': '90.0',
      'Temperature (Sensor edge) (C)': '35.0',
      'Temperature (Sensor junction) (C)': '41.0',
    },
    { power_w: 90, temperature_c: 41 },
  ],
  [
    'an MI300',
    {
      'Current Socket Graphics Package Power (W)': '142.0',
      'Temperature (Sensor junction) (C)': '39.0',
      'Temperature (Sensor edge) (C)': 'N/A',
    },
    { power_w: 142, temperature_c: 39 },
  ],
  ['a card that tells neither', { 'Average Graphics Package Power (W)': 'N/A' }, {}],
  [
    'a card that tells nonsense',
    { 'Average Graphics Package Power (W)': '1e9', 'Temperature (Sensor edge) (C)': '-273' },
    {},
  ],
])('power and the hottest sensor of %s', async (_what, more, measured) => {
  const said = { 'rocm-smi --showuse': JSON.stringify({ card0: { ...card('99', 32, '0x1b'), ...more } }) };
  expect(await read(said)).toEqual([{ use: 0.99, memory_used_mib: 32_768, memory_total_mib: 65_536, ...measured }]);
});

test('power and the hottest sensor by amd-smi', async () => {
  const degrees = (value: number | string) => ({ value, unit: 'C' });
  const gpu = {
    power: { socket_power: { value: 137, unit: 'W' }, gfx_voltage: 'N/A' },
    temperature: { edge: 'N/A', hotspot: degrees(46), mem: degrees(38) },
  };
  expect(await read({ 'amd-smi metric': JSON.stringify([gpu, { power: 'N/A', temperature: 7 }]) })).toEqual([
    { use: null, memory_used_mib: null, memory_total_mib: null, power_w: 137, temperature_c: 46 },
    { use: null, memory_used_mib: null, memory_total_mib: null },
  ]);
});

test('without rocm-smi amd-smi is asked, in its older and its newer form', async () => {
  const metric = (value: number | string) => ({
    gpu: 0,
    usage: { gfx_activity: value === 'N/A' ? 'N/A' : { value, unit: '%' }, umc_activity: { value: 1, unit: '%' } },
    mem_usage: { total_vram: { value: 196_592, unit: 'MB' }, used_vram: { value: 283, unit: 'MB' } },
  });
  const asked = 'amd-smi metric --usage --mem-usage --power --temperature --json';
  const [busy, silent] = [42, 'N/A'].map(metric);
  const told = { memory_used_mib: 283, memory_total_mib: 196_592 };
  const wanted = [
    { use: 0.42, ...told },
    { use: null, ...told },
  ];
  expect(await read({ [asked]: JSON.stringify([busy, silent]) })).toEqual(wanted);
  expect(await read({ [asked]: JSON.stringify({ gpu_data: [busy, silent] }) })).toEqual(wanted);
  expect(await read({ [asked]: JSON.stringify({ gpu_data: [busy, silent] }) }, { HIP_VISIBLE_DEVICES: '1' })).toEqual(
    wanted.slice(1),
  );
});

test.each(['', 'garbage', '[]garbage', '{"card0": 3}', '{"gpu_data": {}}'])(
  'a tool that says %j tells nothing',
  async (said) => {
    expect(await read({ 'rocm-smi --showuse': said, 'amd-smi metric': said })).toBeNull();
  },
);
