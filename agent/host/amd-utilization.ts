/** Utilization of AMD GPUs from `rocm-smi`, or from `amd-smi` if ROCm no longer includes that tool. */
import * as z from 'zod';
import type { GpuUse } from '../../shared/deployment/order-reply.ts';
import { visibleToRocm } from './amd-gpus.ts';
import type { RunTool } from './run-tool.ts';
import type { VisibleDevice } from './visible-devices.ts';

interface UsedDevice extends VisibleDevice<UsedDevice> {
  use: GpuUse;
  slices: UsedDevice[];
}

type Env = Readonly<Record<string, string | undefined>>;

const MIB_BYTES = 1024 * 1024;

/** Output of rocm-smi: `{"card0": {"GPU use (%)": "12", "VRAM Total Memory (B)": "25753026560", …}, "system": {…}}` */
const rocmSchema = z.record(z.string(), z.record(z.string(), z.unknown()));

/** Undefined if the tool is missing, or its output is not understood. */
export async function rocmUse(run: RunTool, env: Env): Promise<UsedDevice[] | undefined> {
  const asked = ['--showuse', '--showmeminfo', 'vram', '--showuniqueid', '--showpower', '--showtemp', '--json'];
  const cards = read(rocmSchema, await run('rocm-smi', asked));
  const named = Object.entries(cards ?? {}).filter(([name]) => /^card\d+$/.test(name));
  if (named.length === 0) return undefined;
  const devices = named
    .sort(([a], [b]) => Number(a.slice(4)) - Number(b.slice(4)))
    .map(([, card]) => {
      const id = /^0x([0-9a-f]+)$/i.exec(String(card['Unique ID']))?.[1];
      const use = share(card['GPU use (%)']);
      return device(id === undefined ? '' : `GPU-${id}`, {
        use,
        memory_used_mib: mib(card['VRAM Total Used Memory (B)']),
        memory_total_mib: mib(card['VRAM Total Memory (B)']),
        ...measured(ofCard(card, /power \(W\)$/i), ofCard(card, /^Temperature .*\(C\)$/i)),
      });
    });
  return visibleToRocm(devices, env);
}

/**
 * The highest value of the fields with a matching name. Names differ between versions (`Average Graphics Package Power
 * (W)`, `Current Socket Graphics Package Power (W)`), and each of a card's sensors has its own temperature.
 */
function ofCard(card: Readonly<Record<string, unknown>>, name: RegExp): number | null {
  return highest(Object.entries(card).flatMap(([field, value]) => (name.test(field) ? [value] : [])));
}

function highest(values: readonly unknown[]): number | null {
  const amounts = values.map(amount).filter((value) => value !== null);
  return amounts.length === 0 ? null : amounts.reduce((a, b) => Math.max(a, b));
}

/** Leaves out values that no device has. */
function measured(power: number | null, heat: number | null): Pick<GpuUse, 'power_w' | 'temperature_c'> {
  return {
    ...(power === null || power > 100_000 ? {} : { power_w: power }),
    ...(heat === null || heat > 1_000 ? {} : { temperature_c: heat }),
  };
}

/** An amount with its unit, or `"N/A"` if a partition does not report it. */
const amountSchema = z
  .object({ value: z.union([z.number(), z.string()]), unit: z.string().optional() })
  .optional()
  .catch(undefined);
const metricSchema = z.object({
  usage: z.object({ gfx_activity: amountSchema }).optional().catch(undefined),
  mem_usage: z.object({ total_vram: amountSchema, used_vram: amountSchema }).optional().catch(undefined),
  power: z.object({ socket_power: amountSchema }).optional().catch(undefined),
  /** By sensor: `edge`, `hotspot`, `mem`. */
  temperature: z.record(z.string(), amountSchema).optional().catch(undefined),
});
const AMD_METRICS = ['metric', '--usage', '--mem-usage', '--power', '--temperature'];

/** Output of amd-smi: a list, which newer versions wrap in `gpu_data`. */
const amdSchema = z.union([z.array(metricSchema), z.object({ gpu_data: z.array(metricSchema) })]);

/**
 * Undefined if the tool is missing, or its output is not understood. amd-smi prints no UUIDs, so no devices are shown
 * if a variable selects them by UUID.
 */
export async function amdUse(run: RunTool, env: Env): Promise<UsedDevice[] | undefined> {
  const reported = read(amdSchema, await run('amd-smi', [...AMD_METRICS, '--json']));
  if (reported === undefined) return undefined;
  const devices = (Array.isArray(reported) ? reported : reported.gpu_data).map(
    ({ usage, mem_usage: memory, power, temperature }) =>
      device('', {
        use: share(usage?.gfx_activity?.value),
        memory_used_mib: amount(memory?.used_vram?.value),
        memory_total_mib: amount(memory?.total_vram?.value),
        ...measured(
          amount(power?.socket_power?.value),
          highest(Object.values(temperature ?? {}).map((sensor) => sensor?.value)),
        ),
      }),
  );
  return visibleToRocm(devices, env);
}

function read<T>(schema: z.ZodType<T>, answer: Awaited<ReturnType<RunTool>>): T | undefined {
  if (!answer.ok) return undefined;
  try {
    return schema.parse(JSON.parse(answer.stdout));
  } catch {
    return undefined;
  }
}

function device(uuid: string, use: GpuUse): UsedDevice {
  return { uuid, slices: [], use };
}

/** Parses numbers and numeric text. Null for words, and for values that no device has. */
function amount(reported: unknown): number | null {
  const number =
    typeof reported === 'number'
      ? reported
      : typeof reported === 'string' && /^\d+(\.\d+)?$/.test(reported)
        ? Number(reported)
        : -1;
  return Number.isSafeInteger(Math.floor(number)) && number >= 0 ? number : null;
}

function share(percent: unknown): number | null {
  const reported = amount(percent);
  return reported === null ? null : Math.min(1, reported / 100);
}

function mib(bytes: unknown): number | null {
  const reported = amount(bytes);
  return reported === null ? null : Math.floor(reported / MIB_BYTES);
}
