import type { Prediction } from '../planner/predict.ts';
import type { Plan } from '../planner/types.ts';
import type { SimulationResult } from '../serving/cluster.ts';
import { percent, table } from '../validate/table.ts';

const seconds = (value: number | undefined) =>
  value === undefined || !Number.isFinite(value) ? '-' : value >= 100 ? value.toFixed(0) : value.toPrecision(3);

export function planText(plan: Plan, prediction: Prediction | undefined): string {
  const parts: string[] = [];
  if (plan.infeasible !== undefined) parts.push(`NOT FEASIBLE: ${plan.infeasible}`);
  parts.push(
    table(
      ['model', 'pool', 'GPU', 'TP', 'replicas', 'GPUs', 'weight', 'requests/s', 'of at most', 'known by'],
      plan.placements.map((one) => [
        one.model,
        one.pool,
        one.gpu,
        one.tp,
        one.replicas,
        one.replicas * one.tp,
        one.share.toFixed(4),
        one.rate.toPrecision(4),
        one.capacity.toPrecision(4),
        one.source,
      ]),
    ),
  );
  parts.push(modelTable(plan, prediction));
  if (plan.pools.length > 0) {
    parts.push(
      table(
        ['pool', 'GPUs', 'given', 'what one more would give'],
        plan.pools.map((pool) => [pool.pool, pool.gpus, pool.used, pool.oneMore]),
      ),
    );
  }
  parts.push(summary(plan, prediction));
  return parts.join('\n\n');
}

function modelTable(plan: Plan, prediction: Prediction | undefined): string {
  return table(
    ['model', 'requests/s', 'unserved', 'planned mean s', 'simulated mean s', 'P95 s', 'TTFT s', 'TPOT ms'],
    plan.models.map((one) => {
      const result = prediction?.models.find(({ model }) => model === one.model)?.result;
      return [
        one.model,
        one.rate.toPrecision(4),
        one.unserved > 0 ? one.unserved.toPrecision(3) : '0',
        seconds(one.latencyS),
        seconds(result?.latency.mean),
        seconds(result?.latency.p95),
        seconds(result?.ttft.mean),
        result === undefined ? '-' : (result.tpot.mean * 1e3).toFixed(1),
      ];
    }),
  );
}

function summary(plan: Plan, prediction: Prediction | undefined): string {
  const lines = [
    `objective ${plan.objective}; ${(plan.usdPerHour).toFixed(2)} USD/h; flat out it serves ${percent(plan.servedShare, 0)} of the demand of the worst served model`,
  ];
  if (plan.report) {
    const { method, status, gap, integers, simulated } = plan.report;
    lines.push(
      `solved by ${method === 'highs' ? 'HiGHS' : 'rounding and search under the linear bound'}: ${integers} integers, within ${percent(gap, 2)} of the best possible, ` +
        `${plan.report.seconds.toFixed(2)} s, ${simulated} options simulated${status === 'time-limit' ? '; TIME LIMIT reached' : ''}`,
    );
  }
  if (prediction)
    lines.push(
      `simulated: ${prediction.requestsPerS.toPrecision(4)} requests/s, ${prediction.tokensPerS.toPrecision(4)} tokens/s, ${(prediction.energyJ / 3.6e6).toPrecision(3)} kWh (estimate)`,
    );
  return lines.join('\n');
}

export function whyText(plan: Plan): string {
  return plan.models.map(({ model, why }) => `${model}\n${why.map((line) => `  - ${line}`).join('\n')}`).join('\n');
}

export function simulationText(result: SimulationResult): string {
  const row = (name: string, unit: number, { mean, p50, p90, p95, p99, max }: SimulationResult['latency']) => [
    name,
    ...[mean, p50, p90, p95, p99, max].map((value) => (value * unit).toPrecision(4)),
  ];
  return [
    table(
      ['', 'mean', 'P50', 'P90', 'P95', 'P99', 'max'],
      [row('TTFT s', 1, result.ttft), row('TPOT ms', 1e3, result.tpot), row('end to end s', 1, result.latency)],
    ),
    [
      `${result.requests} requests in ${result.durationS.toFixed(1)} s: ${result.requestsPerS.toPrecision(4)} requests/s, ${result.tokensPerS.toPrecision(4)} answer tokens/s`,
      `KV cache ${percent(result.kvUse)} in use while busy (peak ${percent(result.kvPeak)}), GPUs busy ${percent(result.busy)}, ${result.preemptions} pre-emptions, ${result.refused} refused`,
      `energy about ${(result.energyJ / 3.6e6).toPrecision(3)} kWh, ${(result.energyJ / Math.max(1, result.tokensPerS * result.durationS)).toPrecision(3)} J per answer token (estimate)`,
    ].join('\n'),
  ].join('\n\n');
}
