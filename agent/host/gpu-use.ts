/** How busy this job's NVIDIA GPUs are, asked of `nvidia-smi` only while an operator looks. */
import type { GpuUse } from '../../shared/deployment/answer.ts';
import type { RunTool } from './run-tool.ts';
import { type Device, visibleDevices } from './visible.ts';

/** The tool wakes each GPU: several viewers share one answer. */
const FRESH_MS = 2_000;
/** A node without the tool does not get it while it runs. */
const ABSENT_MS = 60_000;
const GPUS_MAX = 64;

interface UsedDevice extends Device<UsedDevice> {
  use: GpuUse;
}

type Env = Readonly<Record<string, string | undefined>>;

export class GpuUseReader {
  readonly #run: RunTool;
  readonly #env: Env;
  readonly #now: () => number;
  #last: { until: number; gpus: Promise<GpuUse[] | null> } | undefined;

  /** `now`: milliseconds, of a clock that does not jump. */
  constructor(run: RunTool, env: Env, now: () => number) {
    this.#run = run;
    this.#env = env;
    this.#now = now;
  }

  /** Null: there is no tool that tells. Never rejects. */
  read(): Promise<GpuUse[] | null> {
    const now = this.#now();
    if (this.#last !== undefined && now < this.#last.until) return this.#last.gpus;
    const last = { until: Number.POSITIVE_INFINITY, gpus: this.#ask() };
    this.#last = last;
    void last.gpus.then((gpus) => {
      last.until = this.#now() + (gpus === null ? ABSENT_MS : FRESH_MS);
    });
    return last.gpus;
  }

  async #ask(): Promise<GpuUse[] | null> {
    const query = ['--query-gpu=uuid,utilization.gpu,memory.used,memory.total', '--format=csv,noheader,nounits'];
    const listed = await this.#run('nvidia-smi', query);
    if (!listed.ok) return null;
    const devices = listed.stdout.split('\n').flatMap(deviceOf);
    const visible = visibleDevices(devices, this.#env.CUDA_VISIBLE_DEVICES);
    return visible.slice(0, GPUS_MAX).map(({ use }) => use);
  }
}

/** `GPU-5d5b…, 87, 60211, 81920`; words such as `[N/A]` are null. */
function deviceOf(line: string): UsedDevice[] {
  const [uuid = '', use = '', used = '', total = ''] = line.split(',').map((field) => field.trim());
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
      },
    },
  ];
}

function amount(text: string): number | null {
  return /^\d+$/.test(text) ? Number(text) : null;
}
