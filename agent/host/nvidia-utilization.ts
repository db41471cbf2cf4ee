/** Utilization of NVIDIA GPUs and their MIG slices, from `nvidia-smi`. */
import type { GpuUse } from '../../shared/deployment/order-reply.ts';
import type { RunTool } from './run-tool.ts';
import { type VisibleDevice, visibleDevices } from './visible-devices.ts';

interface UsedDevice extends VisibleDevice<UsedDevice> {
  use: GpuUse;
  slices: UsedDevice[];
}

type Env = Readonly<Record<string, string | undefined>>;

/** Undefined if the tool is missing or fails. */
export async function nvidiaUse(run: RunTool, env: Env): Promise<UsedDevice[] | undefined> {
  const query = [
    '--query-gpu=uuid,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu,mig.mode.current',
    '--format=csv,noheader,nounits',
  ];
  const listed = await run('nvidia-smi', query);
  if (!listed.ok) return undefined;
  const devices = listed.stdout.split('\n').flatMap(deviceOf);
  if (/,\s*Enabled\s*$/m.test(listed.stdout)) await addSlices(devices, run);
  return visibleDevices(devices, env.CUDA_VISIBLE_DEVICES);
}

/** Parses lines such as `GPU-5d5b…, 87, 60211, 81920, 412.08, 61, Disabled`. Words such as `[N/A]` become null. */
function deviceOf(line: string): UsedDevice[] {
  const [uuid = '', use = '', used = '', total = '', power = '', heat = ''] = line
    .split(',')
    .map((field) => field.trim());
  if (!/^GPU-/i.test(uuid)) return [];
  const percent = amount(use);
  return [
    {
      uuid,
      slices: [],
      use: {
        use: percent === null ? null : Math.min(1, percent / 100),
        memory_used_mib: amount(used),
        memory_total_mib: amount(total),
        ...(/^\d{1,5}(\.\d+)?$/.test(power) ? { power_w: Number(power) } : {}),
        ...(/^\d{1,3}$/.test(heat) ? { temperature_c: Number(heat) } : {}),
      },
    },
  ];
}

function amount(text: string): number | null {
  return /^\d+$/.test(text) ? Number(text) : null;
}

/**
 * Adds MIG slices. The XML report has each slice's memory by its number, and `nvidia-smi -L` has its UUID. Neither has
 * a slice's utilization. Power is that of the whole GPU, so a slice has none; it has the GPU's temperature.
 */
async function addSlices(devices: readonly UsedDevice[], run: RunTool): Promise<void> {
  const [report, listing] = [await run('nvidia-smi', ['-q', '-x']), await run('nvidia-smi', ['-L'])];
  if (!report.ok || !listing.ok) return;
  const memory = sliceMemory(report.stdout);
  let parent: UsedDevice | undefined;
  for (const line of listing.stdout.split('\n')) {
    const uuid = /\(UUID:\s*([^)\s]+)\)/.exec(line)?.[1];
    if (uuid === undefined) continue;
    if (/^\s*GPU\s/.test(line)) {
      parent = devices.find((device) => device.uuid === uuid);
      continue;
    }
    const number = /^\s*MIG\s.*Device\s+(\d+):/.exec(line)?.[1];
    if (parent === undefined || number === undefined) continue;
    const { used = null, total = null } = memory.get(`${parent.uuid} ${number}`) ?? {};
    const { temperature_c: heat } = parent.use;
    const measured = heat === undefined ? {} : { temperature_c: heat };
    parent.slices.push({
      uuid,
      slices: [],
      use: { use: null, memory_used_mib: used, memory_total_mib: total, ...measured },
    });
  }
}

/** Memory in MiB by the GPU's UUID and the slice's number. */
function sliceMemory(xml: string): Map<string, { used: number | null; total: number | null }> {
  const found = new Map<string, { used: number | null; total: number | null }>();
  for (const gpu of xml.split(/<gpu id=/).slice(1)) {
    const uuid = /<uuid>(GPU-[^<]+)<\/uuid>/.exec(gpu)?.[1];
    for (const [, slice = ''] of gpu.matchAll(/<mig_device>(.*?)<\/mig_device>/gs)) {
      const number = /<index>(\d+)<\/index>/.exec(slice)?.[1];
      const memory = /<fb_memory_usage>(.*?)<\/fb_memory_usage>/s.exec(slice)?.[1] ?? '';
      const mib = (name: string) => amount(new RegExp(`<${name}>(\\d+) MiB</${name}>`).exec(memory)?.[1] ?? '');
      if (uuid !== undefined && number !== undefined)
        found.set(`${uuid} ${number}`, { used: mib('used'), total: mib('total') });
    }
  }
  return found;
}
