/** NVIDIA devices of this job, from `nvidia-smi`. */

import { findGpuClass } from '../../shared/hardware/gpu-classes.ts';
import { type GpuRecords, gpuRecords } from './gpu-records.ts';
import type { RunTool } from './run-tool.ts';
import { type VisibleDevice, visibleDevices } from './visible-devices.ts';

interface NvidiaDevice extends VisibleDevice<NvidiaDevice> {
  name: string;
  /** Memory as nvidia-smi printed it. The number may be invalid. */
  vramMib: number;
  slices: NvidiaDevice[];
}

const NAME_MAX_CHARS = 128;

export async function nvidiaGpus(run: RunTool, env: Readonly<Record<string, string | undefined>>): Promise<GpuRecords> {
  const query = ['--query-gpu=index,uuid,name,memory.total', '--format=csv,noheader,nounits'];
  const listed = await run('nvidia-smi', query);
  if (!listed.ok) return { gpus: [], note: listed.reason, absent: listed.absent };
  const devices = parseQuery(listed.stdout);
  const slices = await run('nvidia-smi', ['-L']);
  if (slices.ok) addSlices(devices, slices.stdout);
  const variable = env.CUDA_VISIBLE_DEVICES;
  const visible = visibleDevices(devices, variable);
  const hidden =
    visible.length < devices.length
      ? `CUDA_VISIBLE_DEVICES="${variable}" shows ${visible.length} of ${devices.length} GPUs`
      : undefined;
  return gpuRecords(visible, hidden);
}

/**
 * Returns the names of the devices that this job may use, as CUDA_VISIBLE_DEVICES takes them: UUIDs of GPUs and of MIG
 * slices. Without nvidia-smi, the names in the variable.
 */
export async function nvidiaDeviceNames(
  run: RunTool,
  env: Readonly<Record<string, string | undefined>>,
): Promise<string[]> {
  const variable = env.CUDA_VISIBLE_DEVICES;
  const listed = await run('nvidia-smi', ['-L']);
  if (listed.ok) {
    const devices = [...listed.stdout.matchAll(/^GPU \d+: (.+) \(UUID: (GPU-[0-9a-f-]+)\)/gim)].map(
      ([, name = '', uuid = '']): NvidiaDevice => ({ uuid, name, vramMib: 0, slices: [] }),
    );
    addSlices(devices, listed.stdout);
    return visibleDevices(devices, variable).map(({ uuid }) => uuid);
  }
  const named = (variable ?? '').split(',').map((name) => name.trim());
  const end = named.findIndex((name) => !/^(?:\d+|(?:GPU|MIG)-[\w/-]+)$/i.test(name));
  return end < 0 ? named : named.slice(0, end);
}

/** Parses lines such as `0, GPU-5d5b…, NVIDIA A100-SXM4-80GB, 81920`. */
function parseQuery(csv: string): NvidiaDevice[] {
  return csv.split('\n').flatMap((line) => {
    const match = /^\s*\d+\s*,\s*(GPU-[0-9a-f-]+)\s*,\s*(.+?)\s*,\s*([^,]*)$/i.exec(line);
    if (!match) return [];
    const [, uuid = '', fullName = '', memory = ''] = match;
    const name = fullName.slice(0, NAME_MAX_CHARS);
    const vramMib = amount(memory.trim()) ?? (findGpuClass(name)?.memoryGib[0] ?? 0) * 1024;
    return [{ uuid, name, vramMib, slices: [] }];
  });
}

/**
 * Undefined for words such as `[N/A]`, which is printed if the GPU shares its memory with the CPU (GB10). The table of
 * GPU classes then has a better value.
 */
function amount(text: string): number | undefined {
  if (/^\d+$/.test(text)) return Number(text);
  return /^[-+.\d]/.test(text) ? Number.NaN : undefined;
}

/**
 * Parses `GPU 0: NAME (UUID: GPU-…)` and, below it, ` MIG 3g.20gb Device 0: (UUID: MIG-…)`. A slice's memory is part of
 * its profile's name; the driver reserves a few percent of it.
 */
function addSlices(devices: readonly NvidiaDevice[], listing: string): void {
  let parent: NvidiaDevice | undefined;
  for (const line of listing.split('\n')) {
    const uuid = /\(UUID:\s*([^)\s]+)\)/.exec(line)?.[1];
    if (uuid === undefined) continue;
    if (/^\s*GPU\s/.test(line)) {
      parent = devices.find((device) => device.uuid === uuid);
      continue;
    }
    const profile = /^\s*MIG\s+(\S+)/.exec(line)?.[1];
    if (!parent || profile === undefined) continue;
    const gb = Number(/(\d+)gb/.exec(profile)?.[1] ?? 0);
    parent.slices.push({
      uuid,
      name: `${parent.name} MIG ${profile}`.slice(0, NAME_MAX_CHARS),
      vramMib: gb * 1024,
      slices: [],
    });
  }
}
