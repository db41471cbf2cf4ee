/** The tools are mocks that print what the real ones print; no driver is asked. */
import { describe, expect, it } from 'vitest';
import { hardwareOf, inventory } from '../../../agent/host/hardware-inventory.ts';
import { nvidiaDeviceNames } from '../../../agent/host/nvidia-gpus.ts';
import { toolRunner } from '../../../agent/host/run-tool.ts';
import { usableMemoryMib } from '../../../agent/host/usable-memory.ts';
import { fakeTool, scratch, userEnv } from '../support/harness.ts';

async function found(tools: Record<string, string>, more: Record<string, string> = {}) {
  const directory = scratch();
  for (const [name, script] of Object.entries(tools)) fakeTool(directory, name, script);
  // Only the mocks, because this machine may have the real tools.
  const env = { ...userEnv(directory, more), PATH: `${directory}/bin` };
  const lines: string[] = [];
  const hardware = await inventory(env, toolRunner(env), (line) => lines.push(line));
  return { ...hardware, log: lines.join('\n') };
}

const print = (text: string) => `/bin/cat <<'END'\n${text}\nEND`;

const A100S = `0, GPU-5d5ba0d6-0000-4000-8000-000000000001, NVIDIA A100-SXM4-80GB, 81920
1, GPU-5d5ba0d6-0000-4000-8000-000000000002, NVIDIA A100-SXM4-80GB, 81920`;

const A100S_LISTED = `GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5d5ba0d6-0000-4000-8000-000000000001)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-5d5ba0d6-0000-4000-8000-000000000002)`;

const smi = (query: string, listing: string) => `case "$1" in -L) ${print(listing)}\n;; *) ${print(query)}\n;; esac`;

describe('the hardware of a job', () => {
  it('is what nvidia-smi lists', async () => {
    const { gpus } = await found({ 'nvidia-smi': smi(A100S, A100S_LISTED) });
    expect(gpus).toEqual(Array(2).fill({ class: 'A100', name: 'NVIDIA A100-SXM4-80GB', vram_mib: 81_920 }));
  });

  it('is only what CUDA_VISIBLE_DEVICES leaves, and the log says so', async () => {
    const { gpus, log } = await found({ 'nvidia-smi': smi(A100S, A100S_LISTED) }, { CUDA_VISIBLE_DEVICES: '1' });
    expect(gpus).toHaveLength(1);
    expect(log).toContain('1 of 2');
  });

  it('loses no GPU where Slurm confines devices and the tool counts from 0', async () => {
    const confined = { CUDA_VISIBLE_DEVICES: '2,3', SLURM_JOB_GPUS: '2,3' };
    expect((await found({ 'nvidia-smi': smi(A100S, A100S_LISTED) }, confined)).gpus).toHaveLength(2);
  });

  it('knows MIG slices with the memory of their profile', async () => {
    const listing = `GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5d5ba0d6-0000-4000-8000-000000000001)
  MIG 3g.40gb     Device  0: (UUID: MIG-11111111-2222-5333-8444-555555555555)
  MIG 1g.10gb+me  Device  1: (UUID: MIG-99999999-2222-5333-8444-555555555555)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-5d5ba0d6-0000-4000-8000-000000000002)`;
    const { gpus } = await found({ 'nvidia-smi': smi(A100S, listing) }, { CUDA_VISIBLE_DEVICES: 'MIG-9999,MIG-1111' });
    expect(gpus).toEqual([
      { class: 'A100', name: 'NVIDIA A100-SXM4-80GB MIG 1g.10gb+me', vram_mib: 10_240 },
      { class: 'A100', name: 'NVIDIA A100-SXM4-80GB MIG 3g.40gb', vram_mib: 40_960 },
    ]);
  });

  it('has a name for each GPU and slice of MIG, with which one process gets it', async () => {
    const listing = `GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5d5ba0d6-0000-4000-8000-000000000001)
  MIG 3g.40gb     Device  0: (UUID: MIG-11111111-2222-5333-8444-555555555555)
  MIG 1g.10gb+me  Device  1: (UUID: MIG-99999999-2222-5333-8444-555555555555)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-5d5ba0d6-0000-4000-8000-000000000002)`;
    const named = (variable?: string, ok = true) =>
      nvidiaDeviceNames(
        async () => (ok ? { ok, stdout: listing } : { ok, reason: 'nvidia-smi is not installed', absent: true }),
        variable === undefined ? {} : { CUDA_VISIBLE_DEVICES: variable },
      );
    const slices = ['MIG-11111111-2222-5333-8444-555555555555', 'MIG-99999999-2222-5333-8444-555555555555'];
    const second = 'GPU-5d5ba0d6-0000-4000-8000-000000000002';
    expect(await named()).toEqual([...slices, second]);
    expect(await named('1')).toEqual([second]);
    expect(await named('MIG-9999,1')).toEqual([slices[1], second]);
    expect(await named('')).toEqual([]);
    // Without nvidia-smi, as in some containers.
    expect(await named('0,MIG-GPU-1/2/3,NoDevFiles,1', false)).toEqual(['0', 'MIG-GPU-1/2/3']);
    expect(await named(undefined, false)).toEqual([]);
  });

  it('has the data sheet’s memory where the driver does not tell', async () => {
    const { gpus } = await found({ 'nvidia-smi': smi('0, GPU-1, NVIDIA GB10, [N/A]', '') });
    expect(gpus).toEqual([{ class: 'GB10', name: 'NVIDIA GB10', vram_mib: 131_072 }]);
  });

  const H100 = { class: 'H100', name: 'NVIDIA H100', vram_mib: 81_559 };
  it.each(['99999999999999999999999', '18446744073709551615', '-5000000', '1e999', '0x7', '1.5'])(
    'leaves out a GPU with %s MiB by nvidia-smi, and the log says so',
    async (memory) => {
      const listed = `0, GPU-a, NVIDIA H100, ${memory}\n1, GPU-b, NVIDIA H100, 81559`;
      const { gpus, log } = await found({ 'nvidia-smi': smi(listed, '') });
      expect(gpus).toEqual([H100]);
      expect(log).toContain('GPUs: ignored 1 of 2: NVIDIA H100 reports an impossible memory size of');
    },
  );

  it('counts a GPU that is left out in CUDA_VISIBLE_DEVICES', async () => {
    const listed = '0, GPU-a, NVIDIA A100, -1\n1, GPU-b, NVIDIA H100, 81559\n2, GPU-c, NVIDIA A100, 81920';
    const { gpus, log } = await found({ 'nvidia-smi': smi(listed, '') }, { CUDA_VISIBLE_DEVICES: '0,1' });
    expect(gpus).toEqual([H100]);
    expect(log).toContain('shows 2 of 3 GPUs; ignored 1 of 2');
  });

  it('is without a MIG slice whose profile tells an impossible size', async () => {
    const listing =
      'GPU 0: NVIDIA H100 (UUID: GPU-a)\n  MIG 99999999999999999999gb Device 0: (UUID: MIG-1)\n  MIG 1g.10gb Device 1: (UUID: MIG-2)';
    const { gpus, log } = await found({ 'nvidia-smi': smi('0, GPU-a, NVIDIA H100, 81559', listing) });
    expect(gpus).toEqual([{ class: 'H100', name: 'NVIDIA H100 MIG 1g.10gb', vram_mib: 10_240 }]);
    expect(log).toContain('ignored 1 of 2');
  });

  it.each(['99999999999999999999999', '18446744073709551615', '-5000000', '1e999'])(
    'leaves out a GPU with %s bytes by rocm-smi, and the log says so',
    async (memory) => {
      const csv = `device,Card Series,Unique ID,VRAM Total Memory (B)
card0,AMD Instinct MI300X OAM,0x1e,${memory}
card1,AMD Instinct MI300X OAM,0x1f,206141652992`;
      const { gpus, log } = await found({ 'rocm-smi': print(csv) });
      expect(gpus).toEqual([{ class: 'MI300X', name: 'AMD Instinct MI300X OAM', vram_mib: 196_592 }]);
      expect(log).toContain('GPUs: ignored 1 of 2: AMD Instinct MI300X OAM reports an impossible memory size of');
    },
  );

  it('has no GPUs, and a reason in the log, when the driver fails', async () => {
    const script = 'echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18';
    const { gpus, log } = await found({ 'nvidia-smi': script });
    expect(gpus).toEqual([]);
    expect(log).toContain('Driver/library version mismatch');
  });

  it('has no GPUs, and a reason in the log, without any tool', async () => {
    const { gpus, log, cpus, memory_mib } = await found({});
    expect(gpus).toEqual([]);
    expect(log).toContain('neither nvidia-smi nor rocm-smi');
    expect(cpus).toBeGreaterThan(0);
    expect(memory_mib).toBeGreaterThan(0);
  });

  it('takes garbage for no GPUs', async () => {
    const { gpus } = await found({ 'nvidia-smi': '/usr/bin/head -c 10000 /dev/urandom', 'rocm-smi': 'echo garbage' });
    expect(gpus).toEqual([]);
  });

  it('lists each die of an MI250X, for any columns of rocm-smi', async () => {
    const csv = `WARNING: AMD GPU device(s) is/are in a low-power state.

device,Unique ID,VRAM Total Memory (B),VRAM Total Used Memory (B),Card series,Card model,Card vendor,Card SKU
card0,0xaa11,68702699520,10960896,AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2,0x0b0c,"Advanced Micro Devices, Inc. [AMD/ATI]",D65209
card1,0xbb22,68702699520,10960896,N/A,0x0b0c,"Advanced Micro Devices, Inc. [AMD/ATI]",D65209
card2,0xcc33,68702699520,10960896,AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2,0x0b0c,"Advanced Micro Devices, Inc. [AMD/ATI]",D65209`;
    const die = { class: 'MI250X', name: 'AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2', vram_mib: 65_520 };
    const tools = { 'rocm-smi': print(csv) };
    expect((await found(tools)).gpus).toEqual([die, die, die]);
    expect((await found(tools, { ROCR_VISIBLE_DEVICES: '1,GPU-cc33' })).gpus).toEqual([die, die]);
    // HIP numbers the devices that ROCr left.
    expect((await found(tools, { ROCR_VISIBLE_DEVICES: '1,2', HIP_VISIBLE_DEVICES: '0' })).gpus).toEqual([die]);
    // Slurm sets both to the node's numbers.
    expect((await found(tools, { ROCR_VISIBLE_DEVICES: '1,2', CUDA_VISIBLE_DEVICES: '1,2' })).gpus).toHaveLength(2);
  });

  it('finds AMD’s columns behind a vendor with an unquoted comma', async () => {
    const csv = `device,Card Series,Card Vendor,Unique ID,VRAM Total Memory (B)
card0,AMD Instinct MI300X OAM,Advanced Micro Devices, Inc. [AMD/ATI],0x1f,206141652992`;
    const { gpus } = await found({ 'rocm-smi': print(csv) }, { ROCR_VISIBLE_DEVICES: 'GPU-1f' });
    expect(gpus).toEqual([{ class: 'MI300X', name: 'AMD Instinct MI300X OAM', vram_mib: 196_592 }]);
  });

  it('of an engine over several nodes is that of all of them', () => {
    const gpu = { class: 'H100', name: 'NVIDIA H100', vram_mib: 81_559 };
    const other = { ...gpu, name: 'NVIDIA H100 NVL' };
    expect(hardwareOf({ gpus: [gpu, gpu, other], cpus: 8, memory_mib: 100 }, 3)).toEqual({
      gpus: [
        { ...gpu, count: 6 },
        { ...other, count: 3 },
      ],
      cpus: 24,
      memory_mib: 300,
    });
    const many = hardwareOf({ gpus: [gpu, gpu, other], cpus: 8, memory_mib: 100 }, 100);
    expect(many.gpus.map(({ count }) => count)).toEqual([200, 56]);
  });
});

describe('usable memory', () => {
  const GIB = 1024 ** 3;
  const files = (texts: Record<string, string>) => ({ readText: (path: string) => texts[path], totalBytes: 512 * GIB });

  it('is the machine’s when nothing limits it', () => {
    expect(usableMemoryMib({}, files({}))).toBe(512 * 1024);
  });

  it('is the job’s, although the task’s own group is unlimited', () => {
    const path = '/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0';
    const sources = files({
      '/proc/self/cgroup': `0::${path}\n`,
      [`/sys/fs/cgroup${path}/memory.max`]: 'max\n',
      '/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/memory.max': `${64 * GIB}\n`,
    });
    expect(usableMemoryMib({}, sources)).toBe(64 * 1024);
  });

  it('is read from version 1 groups as well', () => {
    const sources = files({
      '/proc/self/cgroup': '5:cpuset:/x\n4:memory:/slurm/uid_1/job_7\n',
      '/sys/fs/cgroup/memory/slurm/uid_1/job_7/memory.limit_in_bytes': `${32 * GIB}`,
      '/sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712',
    });
    expect(usableMemoryMib({}, sources)).toBe(32 * 1024);
  });

  it('is what was asked of Slurm where nothing enforces it, and --mem=0 is everything', () => {
    expect(usableMemoryMib({ SLURM_MEM_PER_NODE: '4096' }, files({}))).toBe(4096);
    expect(usableMemoryMib({ SLURM_MEM_PER_NODE: '0' }, files({}))).toBe(512 * 1024);
  });
});
