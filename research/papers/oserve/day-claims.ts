/** One static deployment for a whole trace beside ours (Figures 2, 8, 9 and 10). */
import { table } from '../../../scheduler/validate/text-table.ts';
import { row } from '../rows.ts';
import type { Day, DayPolicy } from './day-runs.ts';
import type { Section } from './section.ts';

const WHY = 'in the quick run ours begins with the deployment of static and does not switch, with true kinds neither';

const geometric = (values: readonly number[]): number =>
  Math.exp(values.reduce((sum, one) => sum + Math.log(one), 0) / Math.max(1, values.length));

export function dayClaims(days: readonly Day[]): Section {
  const over = (name: DayPolicy) => days.map(({ results }) => results[name].p99 / results.ours.p99);
  const ofSpans = days.flatMap(({ results }) =>
    results.static.spans.map((staticS, i) => staticS / (results.ours.spans[i] ?? Number.NaN)),
  );
  const lost = days.flatMap(({ results }) => Object.values(results)).reduce((sum, one) => sum + one.unanswered, 0);
  const minutes = [...new Set(days.map((day) => day.minutes))].join(' and ');
  return {
    title: `One static deployment for ${minutes} minutes (Figures 9 and 10): ${days.length} runs`,
    rows: [
      row('requests without an answer, all runs', '', lost, { band: [0, 0] }),
      row('P99 of static over ours, whole run, geometric mean', '×', geometric(over('static')), {
        paper: 1.5,
        band: [1.5, 100],
        miss: { band: [0.8, 1.5], reason: WHY },
      }),
      row('P99 of static over ours, spans P1 to P6, largest', '×', Math.max(...ofSpans), {
        paper: 2.7,
        band: [2, 100],
        miss: { band: [0.8, 2], reason: WHY },
      }),
      row('P99 of static over ours, spans P1 to P6, geometric mean', '×', geometric(ofSpans)),
      row('P99 of reload over ours, whole run, geometric mean', '×', geometric(over('reload'))),
      row('P99 of the live planner over ours, whole run, geometric mean', '×', geometric(over('live planner'))),
      row('P99 of ours with judged kinds over ours with the true kinds', '×', 1 / geometric(over('ours, kinds known'))),
      row(
        'switches of ours in a run, mean',
        '',
        days.reduce((sum, { results }) => sum + results.ours.switches, 0) / days.length,
      ),
    ],
    verdicts: [
      {
        claim: 'P99 over a whole trace is 1.5 × better than that of one static deployment',
        verdict: geometric(over('static')) >= 1.5 ? 'reproduced' : 'refuted',
        reason: `${geometric(over('static')).toFixed(2)} ×: ${WHY}`,
      },
    ],
    text: [runsTable(days), spansTable(days), ...days.map(courseTable)].join('\n\n'),
  };
}

const runsTable = (days: readonly Day[]): string =>
  table(
    ['run', 'policy', 'P99', 'mean', 'TTFT P99', 'TBT P99 ms', 'req/s', 'switches', 'begins with'],
    days.flatMap(({ name: run, results }) =>
      Object.entries(results).map(([name, { p99, mean, ttftP99, tbtP99, requestsPerS, switches, deployment }]) => [
        run,
        name,
        ...[p99, mean, ttftP99].map((s) => s.toFixed(1)),
        (tbtP99 * 1e3).toFixed(0),
        requestsPerS.toFixed(1),
        switches,
        deployment,
      ]),
    ),
  );

const spansTable = (days: readonly Day[]): string =>
  table(
    ['span', 'static', 'ours', 'static over ours', 'ours, kinds known'],
    days.flatMap(({ name, results }) =>
      results.static.spans.map((staticS, i) => {
        const [oursS, knownS] = [results.ours.spans[i] ?? 0, results['ours, kinds known'].spans[i] ?? 0];
        const figures = [staticS.toFixed(1), oursS.toFixed(1), (staticS / oursS).toFixed(2), knownS.toFixed(1)];
        return [`${name}, P${i + 1}`, ...figures];
      }),
    ),
  );

/** Rows of the table of a course. */
const COURSE_ROWS = 20;

/** Demand by kind and deployment over time (Figures 2 and 8). */
function courseTable({ name, kinds, course }: Day): string {
  const each = Math.max(1, Math.ceil(course.length / COURSE_ROWS));
  const rows = course
    .filter((_, i) => i % each === 0)
    .map(({ minute, demand, deployment, p99 }) => [
      minute,
      ...demand.map((one) => one.toFixed(1)),
      deployment,
      p99.toFixed(1),
    ]);
  return table(['minute', ...kinds, `deployment of ours, ${name}`, 'P99'], rows);
}
