/** Measures this machine's GPUs, for the metrics page and, more seldom, for the registry. */
import type { GpuUse } from '../../shared/deployment/order-reply.ts';
import type { GpuState } from '../../shared/lattice/node-record.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { GpuUseReader } from '../host/gpu-utilization.ts';

/** Interval of measurements without requests for the metrics page. */
const MEASURE_MS = 60_000;
/**
 * Minimum time between two changes of the registry's record. Each change is sent to every replica, so a measurement
 * must not change it more often than sessions come and go.
 */
const PUBLISH_MS = 600_000;

interface GpuMonitorOptions {
  reader: Pick<GpuUseReader, 'read' | 'last'>;
  publish(state: GpuState): void;
  /** Milliseconds of a monotonic clock. */
  now(): number;
}

export class GpuMonitor {
  readonly #options: GpuMonitorOptions;
  #timer: NodeJS.Timeout | undefined;
  #published = '';
  #publishedAt = Number.NEGATIVE_INFINITY;

  constructor(options: GpuMonitorOptions) {
    this.#options = options;
  }

  /** Measures from now on. Call only if there are GPUs, because the tools are run each minute. */
  open(): void {
    this.#timer ??= setInterval(() => neverRejects(this.measure()), MEASURE_MS).unref();
    neverRejects(this.measure());
  }

  /** The last measurement of each GPU. Also starts the next one, so that a page shows the state at its last reading. */
  get current(): readonly GpuUse[] {
    if (this.#timer !== undefined) neverRejects(this.measure());
    return this.#options.reader.last ?? [];
  }

  /** Measures once, and publishes the result if it is due and differs from the published state. Never rejects. */
  async measure(): Promise<void> {
    const { reader, publish, now } = this.#options;
    const gpus = await reader.read();
    if (gpus === null || gpus.length === 0) return;
    const state = gpuState(gpus);
    const text = JSON.stringify(state);
    if (text === this.#published || now() - this.#publishedAt < PUBLISH_MS) return;
    this.#published = text;
    this.#publishedAt = now();
    publish(state);
  }

  close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}

/** Steps to which values are rounded, so that noise changes nothing. */
const STEPS = { use: 0.1, memory_used_mib: 1024, power_w: 25, temperature_c: 5 } as const;

export function gpuState(gpus: readonly GpuUse[]): GpuState {
  const known = (read: (gpu: GpuUse) => number | null | undefined) => gpus.flatMap((gpu) => read(gpu) ?? []);
  const mean = (values: readonly number[]) =>
    values.length === 0 ? undefined : values.reduce((a, b) => a + b, 0) / values.length;
  const temperatures = known((gpu) => gpu.temperature_c);
  const measured = {
    use: mean(known((gpu) => gpu.use)),
    memory_used_mib: mean(known((gpu) => gpu.memory_used_mib)),
    power_w: mean(known((gpu) => gpu.power_w)),
    temperature_c: temperatures.length === 0 ? undefined : temperatures.reduce((a, b) => Math.max(a, b)),
  };
  const state: GpuState = {};
  for (const name of ['use', 'memory_used_mib', 'power_w', 'temperature_c'] as const) {
    const value = measured[name];
    // Rounded again, because multiples of 0.1 are not exact.
    if (value !== undefined) state[name] = Number((Math.round(value / STEPS[name]) * STEPS[name]).toFixed(1));
  }
  return state;
}
