/** AMD devices of this job, from `rocm-smi`. An MI250X card is two dies, each a device of 64 GiB, as engines see it. */

import { type GpuRecords, gpuRecords } from './gpu-records.ts';
import type { RunTool } from './run-tool.ts';
import { type VisibleDevice, visibleDevices } from './visible-devices.ts';

interface AmdDevice extends VisibleDevice<AmdDevice> {
  name: string;
  /** Memory as rocm-smi printed it. The number may be invalid. */
  vramMib: number;
}

const MIB_BYTES = 1024 * 1024;

export async function rocmGpus(run: RunTool, env: Readonly<Record<string, string | undefined>>): Promise<GpuRecords> {
  const query = ['--showproductname', '--showuniqueid', '--showmeminfo', 'vram', '--csv'];
  const listed = await run('rocm-smi', query);
  if (!listed.ok) return { gpus: [], note: listed.reason, absent: listed.absent };
  const all = parseDevices(listed.stdout);
  const seen = visibleToRocm(all, env);
  const hidden =
    seen.length < all.length
      ? `ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES show ${seen.length} of ${all.length} GPUs`
      : undefined;
  return gpuRecords(seen, hidden);
}

export function visibleToRocm<D extends VisibleDevice<D>>(
  all: readonly D[],
  env: Readonly<Record<string, string | undefined>>,
): D[] {
  // ROCr hides devices first, and HIP counts the remaining ones. HIP reads CUDA's variable only if its own is unset.
  // Slurm sets both ROCr's and CUDA's variable to the machine's numbers. If both were applied, too many devices would
  // be hidden, so CUDA's variable is ignored if ROCr's is set.
  const rocr = env.ROCR_VISIBLE_DEVICES;
  const hip = env.HIP_VISIBLE_DEVICES ?? (rocr === undefined ? env.CUDA_VISIBLE_DEVICES : undefined);
  return visibleDevices(visibleDevices(all, rocr), hip);
}

/** Columns are found by their headings, because order and spelling differ between ROCm 4, 5 and 6. */
function parseDevices(csv: string): AmdDevice[] {
  const rows = csv.split('\n').map(cellsOf);
  const at = rows.findIndex(([first]) => first?.toLowerCase() === 'device');
  const headings = (rows[at] ?? []).map((heading) => heading.toLowerCase());
  const column = (...names: string[]) => headings.findIndex((heading) => names.some((name) => heading.includes(name)));
  const [series, model, memory, unique] = [
    column('card series'),
    column('card model'),
    column('vram total memory'),
    column('unique id'),
  ];
  const vendor = column('card vendor');
  const devices: AmdDevice[] = [];
  for (const row of at < 0 ? [] : rows.slice(at + 1)) {
    if (!/^card\d+$/.test(row[0] ?? '')) continue;
    // Some versions do not quote the comma in "Advanced Micro Devices, Inc. [AMD/ATI]".
    if (row.length > headings.length && vendor >= 0) row.splice(vendor, row.length - headings.length + 1, '');
    const reported = [row[series], row[model]].find(
      (cell) => cell !== undefined && cell !== '' && !/^(n\/a|0x)/i.test(cell),
    );
    // Some versions print no name for the second die of a card.
    const name = (reported ?? devices.at(-1)?.name ?? 'AMD GPU').slice(0, 128);
    const id = row[unique] ?? '';
    devices.push({
      uuid: /^(0x)?[0-9a-f]+$/i.test(id) ? `GPU-${id.replace(/^0x/i, '')}` : '',
      name,
      slices: [],
      vramMib: mib(row[memory] ?? ''),
    });
  }
  return devices;
}

/** 0 if the amount is not printed. A value above the safe integers is from a driver that prints -1 as unsigned. */
function mib(bytes: string): number {
  const reported = Number(bytes);
  if (Number.isNaN(reported)) return 0;
  return Number.isSafeInteger(reported) ? Math.floor(reported / MIB_BYTES) : reported;
}

function cellsOf(line: string): string[] {
  return [...line.matchAll(/(?:^|,)\s*(?:"([^"]*)"|([^,]*))/g)].map(([, quoted, plain]) =>
    (quoted ?? plain ?? '').trim(),
  );
}
