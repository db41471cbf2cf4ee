import type { Prediction } from '../planner/predict-plan.ts';
import type { Plan, PlannedModel, PlannedReplicas } from '../planner/types.ts';
import { parallelismText } from '../roofline/parallelism.ts';
import type { SimulationResult } from '../simulator/simulate.ts';
import { percent, table } from '../validate/text-table.ts';
import { countText, durationText, energy, perSecond } from './format-quantities.ts';
import { planPicture } from './plan-picture.ts';

const OBJECTIVE_WORDS: Record<string, string> = {
  gpus: 'the fewest GPUs that meet the latency targets',
  cost: 'the lowest cost that meets the latency targets',
  latency: 'the shortest mean latency',
  throughput: 'the largest share of its requests for the worst served model',
};

const gpusOf = ({ gpus, tp }: PlannedReplicas) => gpus ?? tp;

export function planText(plan: Plan, prediction: Prediction | undefined): string {
  const parts = [headline(plan)];
  if (plan.pools.length > 0) parts.push(planPicture(plan));
  parts.push(replicaTable(plan), modelTable(plan, prediction));
  const worth = plan.pools.filter(({ oneMore }) => !oneMore.startsWith('nothing'));
  const more = worth.map(({ pool, gpu, oneMore }) => `One more ${gpu} in ${pool} would bring ${oneMore}.`);
  parts.push([...more, qualityText(plan), predictionText(prediction)].filter((line) => line !== '').join('\n'));
  return parts.join('\n\n');
}

function headline(plan: Plan): string {
  const used = plan.placements.reduce((sum, one) => sum + one.replicas * gpusOf(one), 0);
  const there = plan.pools.reduce((sum, { gpus }) => sum + gpus, 0);
  const money = plan.usdPerHour > 0 ? `, ${plan.usdPerHour.toFixed(2)} USD per hour` : '';
  const of = there > 0 ? ` of ${countText(there)}` : '';
  const lines = [
    `Plan for ${OBJECTIVE_WORDS[plan.objective] ?? plan.objective}: ${countText(used)}${of} GPUs for ${plan.models.length} model${plan.models.length === 1 ? '' : 's'}${money}.`,
  ];
  if (plan.infeasible !== undefined) lines.unshift(`REQUIREMENTS NOT MET: ${plan.infeasible}`, '');
  return lines.join('\n');
}

function replicaTable(plan: Plan): string {
  return table(
    ['model', 'replicas', 'on', 'nodes', 'requests', 'load', 'of the model'],
    plan.placements.map((one) => [
      one.model,
      one.replicas,
      `${gpusOf(one)} × ${one.gpu} each${one.spread === undefined ? '' : ` (${parallelismText(one.spread)})`}`,
      one.pool,
      perSecond(one.rate),
      one.capacity > 0 ? percent(one.rate / one.capacity, 0) : '-',
      percent(one.share, one.share > 0.999 || one.share < 0.001 ? 0 : 1),
    ]),
  );
}

function modelTable(plan: Plan, prediction: Prediction | undefined): string {
  const head = ['model', 'asked', 'served', 'latency', 'target'];
  if (prediction !== undefined) head.push('simulated', '95 of 100 within', 'first token', 'per token');
  head.push('available');
  return table(
    head,
    plan.models.map((one) => {
      const result = prediction?.models.find(({ model }) => model === one.model)?.result;
      const simulated =
        result === undefined
          ? ['-', '-', '-', '-']
          : [
              durationText(result.latency.mean),
              durationText(result.latency.p95),
              durationText(result.ttft.mean),
              durationText(result.tpot.mean),
            ];
      return [
        one.model,
        perSecond(one.rate),
        servedText(one),
        durationText(one.latencyS),
        targetText(one),
        ...(prediction === undefined ? [] : simulated),
        one.availability === undefined ? '-' : availabilityText(one),
      ];
    }),
  );
}

function servedText({ rate, unserved }: PlannedModel): string {
  if (rate <= 0) return '-';
  return unserved <= 0 ? 'all' : percent(Math.max(0, 1 - unserved / rate), 0);
}

function targetText({ target }: PlannedModel): string {
  if (target === undefined) return 'none';
  return `${durationText(target.latencyS)}${target.asked ? '' : ' (default)'}`;
}

/** Formats an availability as `99.9 % of the time`, with all its nines. */
function availabilityText({ availability = 0, alwaysOn }: PlannedModel): string {
  const digits = availability >= 0.99995 ? 3 : availability >= 0.9995 ? 2 : availability >= 0.995 ? 1 : 0;
  const shown = availability > 0.999995 ? 'over 99.999 %' : percent(availability, digits);
  return `${shown}${alwaysOn === true ? ', always on' : ''}`;
}

/** Describes how close the plan is to the best one, and how that was determined. */
function qualityText({ report, objective }: Plan): string {
  if (report === undefined) return '';
  const { gap, proven, status, seconds, simulated, integers } = report;
  const known = `${simulated} of ${integers} configurations of a replica were simulated, ${seconds.toFixed(1)} s`;
  const late = status === 'time-limit' ? ' The time limit ended the search.' : '';
  const best =
    gap < 5e-5
      ? `No plan is better (${objective}): proven`
      : `No plan is more than ${percent(gap, gap < 0.1 ? 1 : 0)} better (${objective}): proven`;
  if (proven) return `${best}; ${known}.${late}`;
  const guess =
    gap >= 1
      ? 'The quality of this plan is unknown'
      : `No plan more than ${percent(gap, 1)} better is known (${objective})`;
  return `${guess}: not proven; ${known}.${late}`;
}

function predictionText(prediction: Prediction | undefined): string {
  if (prediction === undefined) return '';
  return (
    `Simulated: ${perSecond(prediction.requestsPerS)} and ${countText(prediction.tokensPerS)} tokens/s, ` +
    `a response takes ${durationText(prediction.meanS)} on average, and 95 of 100 responses take at most ${durationText(prediction.p95S)}; about ${energy(prediction.energyJ)} (an estimate).`
  );
}

export function whyText(plan: Plan): string {
  return plan.models.map(({ model, why }) => `${model}\n${why.map((line) => `  - ${line}`).join('\n')}`).join('\n');
}

export function simulationText(result: SimulationResult): string {
  const row = (name: string, { mean, p50, p90, p95, p99, max }: SimulationResult['latency']) => [
    name,
    ...[mean, p50, p90, p95, p99, max].map(durationText),
  ];
  return [
    table(
      ['', 'mean', 'half within', '90 of 100', '95 of 100', '99 of 100', 'longest'],
      [
        row('until the first token', result.ttft),
        row('each token after it', result.tpot),
        row('the whole response', result.latency),
      ],
    ),
    [
      `${countText(result.requests)} requests in ${durationText(result.durationS)}: ${perSecond(result.requestsPerS)}, ${countText(result.tokensPerS)} output tokens/s`,
      `GPUs busy ${percent(result.busy, 0)} of the time; their memory for requests ${percent(result.kvUse, 0)} full while busy, ${percent(result.kvPeak, 0)} at most`,
      `${countText(result.preemptions)} requests were preempted because memory ran out, ${countText(result.refused)} rejected because they never fit`,
      ...(result.prefixHit > 0
        ? [`${percent(result.prefixHit)} of the prompts' tokens came from the prefix cache`]
        : []),
      `about ${energy(result.energyJ)}, ${(result.energyJ / Math.max(1, result.tokensPerS * result.durationS)).toPrecision(3)} J per output token (an estimate)`,
    ].join('\n'),
  ].join('\n\n');
}
