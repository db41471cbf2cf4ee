import { smoothTransport } from '../../../scheduler/regions/smooth-transport.ts';
import { seededRandom } from '../../../scheduler/simulator/random.ts';
import { LpProgram, solve } from '../../../scheduler/solver/highs.ts';
import type { Row } from '../rows.ts';
import { claim } from './claims.ts';

const [REGIONS, KINDS, TYPES] = [12, 5, 3];

export interface SolveTiming {
  tasks: number;
  milpS: number;
  /** HiGHS proved its solution within 1 %. */
  solved: boolean;
  aggregatedS: number;
}

/** Figure 5: one binary variable for each task and place, compared with one share for each origin, type and place. */
export async function timings(sizes: readonly number[], limitS: number): Promise<SolveTiming[]> {
  const found: SolveTiming[] = [];
  for (const tasks of sizes) {
    const { status, seconds } = await solve(perTask(tasks), { timeLimitS: limitS, gap: 0.01, seed: 1 });
    found.push({ tasks, milpS: seconds, solved: status === 'optimal', aggregatedS: aggregated(tasks) });
  }
  return found;
}

/** min Σ X·cost + unevenness; each task in one place, the work of a place within its capacity. */
function perTask(tasks: number): LpProgram {
  const random = seededRandom(tasks);
  const program = new LpProgram();
  const places = Array.from({ length: REGIONS * KINDS }, () => [] as [number, number][]);
  for (let task = 0; task < tasks; task++) {
    const work = 5 + 15 * random();
    const once: [number, number][] = places.map((terms) => {
      const seconds = work * (0.5 + 4 * random());
      const variable = program.column(seconds + random(), 0, 1, true);
      terms.push([variable, seconds]);
      return [variable, 1];
    });
    program.row(1, 1, once);
  }
  const busiest = program.column(10, 0, Number.POSITIVE_INFINITY);
  const room = (tasks * 20) / places.length;
  for (const terms of places) {
    program.row(Number.NEGATIVE_INFINITY, room, terms);
    program.row(Number.NEGATIVE_INFINITY, 0, [...terms, [busiest, -1]]);
  }
  return program;
}

function aggregated(tasks: number): number {
  const random = seededRandom(tasks);
  const [rows, columns] = [REGIONS * TYPES, REGIONS * KINDS];
  const cost = new Float64Array(rows * columns).map(() => 5 + 30 * random());
  const mass = new Float64Array(rows).map(() => (2 * random() * tasks) / rows);
  const capacity = new Float64Array(columns).map(() => (2 * random() * 16 * tasks) / columns);
  const started = performance.now();
  smoothTransport(
    { rows, columns, cost, load: cost, mass, capacity },
    new Float64Array(rows * columns).fill(1 / columns),
    0.5,
  );
  return (performance.now() - started) / 1e3;
}

export function timingRows(found: readonly SolveTiming[]): Row[] {
  return found.map(({ tasks, milpS, solved, aggregatedS }) =>
    claim(
      'Figure 5: aggregation by origin and type, share of the time of a MILP over tasks',
      `${tasks} tasks: ${aggregatedS.toFixed(3)} s of ${milpS.toFixed(1)} s${solved ? '' : ', ended by its time limit'}`,
      '%',
      (100 * aggregatedS) / Math.max(1e-6, milpS),
      { band: [0, 50] },
    ),
  );
}
