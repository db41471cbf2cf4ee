/** What a task asks most of a GPU (Table 1b of the paper). */
export const TASK_TYPES = ['compute', 'memory', 'light'] as const;
export type TaskType = (typeof TASK_TYPES)[number];

/** One request that keeps one server busy for some seconds. */
export interface Task {
  id: number;
  /** Index of the region it comes from. */
  origin: number;
  /** Index in `World.models`. */
  model: number;
  /** Index in `TASK_TYPES`. */
  type: number;
  /** Seconds on an A100 without any cache. */
  workS: number;
  arrivalS: number;
  /** A client that has not been started on by then gives up. */
  deadlineS: number;
  /** Requests with the same one begin alike; -1: like no other. */
  prefix: number;
}

/** Share of a task's time on an A100 by what limits it: neither (host, network), arithmetic, memory bandwidth. Assumed; the paper names types only. */
export const TIME_SHARES: Readonly<Record<TaskType, { fixed: number; compute: number; memory: number }>> = {
  compute: { fixed: 0.1, compute: 0.6, memory: 0.3 },
  memory: { fixed: 0.1, compute: 0.1, memory: 0.8 },
  light: { fixed: 0.6, compute: 0.1, memory: 0.3 },
};

/** GPU memory that a task of the type needs beside its model, GB. */
export const TASK_MEMORY_GB: Readonly<Record<TaskType, number>> = { compute: 4, memory: 10, light: 2 };

/** Share of all tasks: the GPUs of the paper, each kept to its own type, are then loaded alike within a factor of 1.5. */
export const TYPE_SHARES: Readonly<Record<TaskType, number>> = { compute: 0.5, memory: 0.2, light: 0.3 };

/** What a server that still holds the prefix saves of the work. */
export const PREFIX_SAVING = 0.15;
