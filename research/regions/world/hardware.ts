import { readFileSync } from 'node:fs';
import * as z from 'zod';
import { findGpu, type HardwareCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import type { GpuType } from '../../../scheduler/catalogue/gpu.ts';
import { researchData } from '../../data-path.ts';
import { TASK_TYPES, type TaskType, TIME_SHARES } from './tasks.ts';

const range = z.tuple([z.number().nonnegative(), z.number().nonnegative()]);
const fileSchema = z.object({
  kinds: z
    .array(z.object({ gpu: z.string(), task_type: z.enum(TASK_TYPES), servers_per_12_regions: range }))
    .min(1)
    .max(64),
  switch_phases_s: z.array(z.number().positive()).min(1).max(16),
  migration_phases_s: z.array(z.number().positive()).min(1).max(16),
  cold_start_s: range,
});

/** Phases of a server. */
export const PHASES = ['asleep', 'waking', 'idle', 'switching', 'busy', 'migrating'] as const;
type Phase = (typeof PHASES)[number];

/**
 * Share of the GPU's power limit by phase. Idle and busy are those of the serving simulator (`docs/scheduling.md`),
 * also an estimate. Loading and migrating keep the host and the memory busy and the arithmetic idle. Asleep is a host
 * in standby. The paper gives seconds of its phases, but no watts.
 */
const POWER_SHARE: Readonly<Record<Phase, number>> = {
  asleep: 0.03,
  waking: 0.4,
  idle: 0.2,
  switching: 0.4,
  busy: 0.85,
  migrating: 0.4,
};

/** One of the five kinds of server, with one GPU each. */
export interface ServerKind {
  gpu: GpuType;
  /** Its use in Table 1b. */
  made: TaskType;
  /** Time of a task by type, relative to its time on the A100. */
  factor: readonly number[];
  /** By index in `PHASES`. */
  watts: readonly number[];
  servers: readonly [number, number];
}

export interface Hardware {
  kinds: ServerKind[];
  /** Seconds until a V100 holds another model of 14 GB (7B parameters in 16 bits). */
  switchS: number;
  /** Seconds in which a running task moves to another server (Figure 3a); neither server serves meanwhile. */
  migrationS: number;
  coldStartS: readonly [number, number];
}

/** `research/data/regions/hardware.json` with speeds and watts of the catalogue. */
export function loadHardware(catalogue: HardwareCatalogue): Hardware {
  const file = fileSchema.parse(JSON.parse(readFileSync(researchData('regions/hardware.json'), 'utf8')));
  const reference = findGpu(catalogue, 'A100-80-SXM');
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  return {
    kinds: file.kinds.map((row) => {
      const gpu = findGpu(catalogue, row.gpu);
      return {
        gpu,
        made: row.task_type,
        factor: TASK_TYPES.map((type) => timeFactor(gpu, reference, type)),
        watts: PHASES.map((phase) => gpu.watts * POWER_SHARE[phase]),
        servers: row.servers_per_12_regions,
      };
    }),
    switchS: sum(file.switch_phases_s),
    migrationS: sum(file.migration_phases_s),
    coldStartS: file.cold_start_s,
  };
}

function timeFactor(gpu: GpuType, reference: GpuType, type: TaskType): number {
  const { fixed, compute, memory } = TIME_SHARES[type];
  return fixed + (compute * reference.bf16) / gpu.bf16 + (memory * reference.bandwidth) / gpu.bandwidth;
}
