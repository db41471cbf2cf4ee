/** The main bottleneck of a task on a GPU (Table 1b of the paper). */
export const TASK_TYPES = ['compute', 'memory', 'light'] as const;
export type TaskType = (typeof TASK_TYPES)[number];

/** One request that keeps one server busy for some seconds. */
export interface Task {
  id: number;
  /** Index of its region. */
  origin: number;
  /** Index in `World.models`. */
  model: number;
  /** Index in `TASK_TYPES`. */
  type: number;
  /** Seconds on an A100 without any cache. */
  workS: number;
  arrivalS: number;
  /** If no server has begun the task by then, the client gives up. */
  deadlineS: number;
  /** Requests with the same value have a common beginning; -1: a unique one. */
  prefix: number;
}

/**
 * Share of a task's time on an A100 by its bottleneck: neither (host, network), arithmetic, memory bandwidth. Assumed,
 * because the paper only names the types.
 */
export const TIME_SHARES: Readonly<Record<TaskType, { fixed: number; compute: number; memory: number }>> = {
  compute: { fixed: 0.1, compute: 0.6, memory: 0.3 },
  memory: { fixed: 0.1, compute: 0.1, memory: 0.8 },
  light: { fixed: 0.6, compute: 0.1, memory: 0.3 },
};

/** GPU memory that a task of the type needs in addition to its model, GB. */
export const TASK_MEMORY_GB: Readonly<Record<TaskType, number>> = { compute: 4, memory: 10, light: 2 };

/**
 * Share of all tasks. With these, the loads of the paper's GPUs differ by at most a factor of 1.5 if each serves only
 * its type.
 */
export const TYPE_SHARES: Readonly<Record<TaskType, number>> = { compute: 0.5, memory: 0.2, light: 0.3 };

/** Share of the work that a server saves if it still holds the prefix. */
export const PREFIX_SAVING = 0.15;
