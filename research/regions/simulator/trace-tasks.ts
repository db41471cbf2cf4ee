import { SchedulerError } from '../../../scheduler/errors.ts';
import { seededRandom } from '../../../scheduler/simulator/random.ts';
import type { TraceRow } from '../../../scheduler/simulator/request-arrivals.ts';
import { TASK_TYPES, type Task } from '../world/tasks.ts';
import type { World } from '../world/world.ts';
import type { TaskSource } from './workload.ts';

export interface TraceTaskOptions {
  slotS: number;
  seed: number;
}

/** A 7B model on an A100 that serves one request: some 10,000 prompt tokens and 80 output tokens per second. */
const [PROMPT_TOKEN_S, ANSWER_TOKEN_S] = [1e-4, 0.0125];
/** Seconds until a client gives up. */
const PATIENCE_S = 120;
/** Long prompts are bound by arithmetic, long responses by memory bandwidth (Table 1b's types by their load). */
const [LONG_PROMPT, LONG_ANSWER] = [2_048, 256];

/** Tasks of a trace of requests. A trace has no origins: they are drawn, all regions with equal probability. */
export function traceTasks(rows: readonly TraceRow[], world: World, options: TraceTaskOptions): TaskSource {
  const random = seededRandom(options.seed);
  const regions = world.topology.regions.length;
  const tasks = rows.map(({ arrival, input, output }, id): Task => {
    if (!(arrival >= 0) || !(input >= 0) || !(output >= 0))
      throw new SchedulerError('bad_input', `request ${id + 1} of the trace has no time or no lengths`);
    const type = TASK_TYPES.indexOf(input > LONG_PROMPT ? 'compute' : output > LONG_ANSWER ? 'memory' : 'light');
    const models = world.models.flatMap((model, index) => (model.type === type ? [index] : []));
    return {
      id,
      origin: Math.floor(random() * regions),
      model: models[Math.floor(random() * models.length)] ?? 0,
      type,
      workS: input * PROMPT_TOKEN_S + output * ANSWER_TOKEN_S,
      arrivalS: arrival,
      deadlineS: arrival + PATIENCE_S,
      prefix: -1,
    };
  });
  tasks.sort((a, b) => a.arrivalS - b.arrivalS);
  let at = 0;
  return { next: () => tasks[at++], expected: (slot) => counted(tasks, world, slot, options.slotS) };
}

/** Arrivals of that slot: a trace is its own perfect forecast. */
function counted(tasks: readonly Task[], world: World, slot: number, slotS: number): number[][] {
  const counts = world.topology.regions.map(() => world.models.map(() => 0));
  for (const { arrivalS, origin, model } of tasks) {
    if (Math.floor(arrivalS / slotS) !== slot) continue;
    const line = counts[origin];
    if (line !== undefined) line[model] = (line[model] ?? 0) + 1;
  }
  return counts;
}
