import { describe, expect, it } from 'vitest';
import { findGpuClass, GPU_CLASSES, gpuClass } from '../../../shared/hardware/gpu-classes.ts';
import table from '../../../shared/hardware/gpus.json' with { type: 'json' };

describe('gpuClass', () => {
  // Product names as nvidia-smi and rocm-smi print them.
  it.each([
    ['NVIDIA GH200 120GB', 'GH200'],
    ['NVIDIA GH200 480GB', 'GH200'],
    ['NVIDIA GH200 144G HBM3e', 'GH200'],
    ['NVIDIA GB200', 'GB200'],
    ['NVIDIA B200', 'B200'],
    ['NVIDIA H200', 'H200'],
    ['NVIDIA H200 NVL', 'H200'],
    ['NVIDIA H100 80GB HBM3', 'H100'],
    ['NVIDIA H100 PCIe', 'H100'],
    ['NVIDIA H20', 'H20'],
    ['NVIDIA A100-SXM4-80GB', 'A100'],
    ['NVIDIA A100-SXM-64GB', 'A100'],
    ['A100-PCIE-40GB', 'A100'],
    ['NVIDIA A100-SXM4-40GB MIG 3g.20gb', 'A100'],
    ['NVIDIA A40', 'A40'],
    ['NVIDIA A10', 'A10'],
    ['NVIDIA A10G', 'A10G'],
    ['NVIDIA L40S', 'L40S'],
    ['NVIDIA L40', 'L40'],
    ['NVIDIA L4', 'L4'],
    ['Tesla T4', 'T4'],
    ['Tesla V100-SXM2-32GB', 'V100'],
    ['NVIDIA GeForce RTX 3090', 'RTX3090'],
    ['NVIDIA GeForce RTX 4090', 'RTX4090'],
    ['NVIDIA RTX A6000', 'RTXA6000'],
    ['NVIDIA RTX 6000 Ada Generation', 'RTX6000ADA'],
    ['NVIDIA RTX PRO 6000 Blackwell Server Edition', 'RTXPRO6000'],
    ['AMD Instinct MI300X OAM', 'MI300X'],
    ['AMD Instinct MI300A', 'MI300A'],
    ['AMD INSTINCT MI250X (MCM) OAM AC MBA', 'MI250X'],
    ['AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2', 'MI250X'],
  ])('knows %s as %s', (name, expected) => {
    expect(gpuClass(name)).toBe(expected);
  });

  it.each(['gh200', 'GH-200', 'rtx3090', 'rtx-3090', 'RTX 3090', 'a100-80gb', 'mi250x', 'rtxa6000', 'rtxpro6000'])(
    'finds what people write: %s',
    (written) => {
      const wanted = written.toUpperCase().replace(/-80GB|[^A-Z0-9]/g, '');
      expect(findGpuClass(written)?.name).toBe(wanted === 'GH200' ? 'GH200' : wanted);
    },
  );

  // Types in sites' gres.conf; types from AutoDetect=nvml are the driver's name in lower case.
  it.each([
    ['3090', 'RTX3090'],
    ['2080ti', 'RTX2080TI'],
    ['nvidia_geforce_rtx_2080_ti', 'RTX2080TI'],
    ['nvidia_rtx3090', 'RTX3090'],
    ['nvidia_rtx_pro_6000', 'RTXPRO6000'],
    ['nvidia_h100_80gb_hbm3', 'H100'],
    ['a100_pcie', 'A100'],
    ['tesla_v100', 'V100'],
  ])('knows the type %s of Slurm as %s', (type, expected) => {
    expect(gpuClass(type)).toBe(expected);
  });

  it('keeps a name it does not know, shortened', () => {
    expect(gpuClass('NVIDIA Zeta 9000-SXM9-999GB')).toBe('ZETA9000SXM9');
    expect(gpuClass('x'.repeat(200)).length).toBe(32);
    expect(gpuClass('')).toBe('UNKNOWN');
  });

  it('has figures and a source for forty GPUs, each of a known class and size', () => {
    expect(table.gpus.length).toBeGreaterThanOrEqual(40);
    expect(new Set(table.gpus.map(({ id }) => id)).size).toBe(table.gpus.length);
    for (const gpu of table.gpus) {
      const { memoryGib = [] } = GPU_CLASSES.find(({ name }) => name === gpu.class) ?? {};
      // Drivers report up to 7 % less than the size that is sold.
      const near = memoryGib.some(
        (size) => gpu.memory_gb / (size * 1.0737) > 0.92 && gpu.memory_gb / (size * 1.0737) < 1.01,
      );
      expect([gpu.id, near, gpu.source.length > 8]).toEqual([gpu.id, true, true]);
      expect(findGpuClass(gpu.id)?.name ?? gpu.class).toBe(gpu.class);
    }
  });

  it('finds every class by its own name, and no name twice', () => {
    for (const { name } of GPU_CLASSES) expect(findGpuClass(name)?.name).toBe(name);
    expect(new Set(GPU_CLASSES.map(({ name }) => name)).size).toBe(GPU_CLASSES.length);
  });
});
