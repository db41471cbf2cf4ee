import { printable } from '../../shared/terminal/printable.ts';
import type { LivePlan, RegionModelPlan, RegionPlanOutcome } from '../regions/live/region-planner.ts';

/** Formats a plan; `state` says if it was published. The head changes in each slot, the body only with the plan. */
export function regionsText(plan: LivePlan, state: string): { head: string; body: string } {
  if (plan.models.length === 0)
    return { head: `${state}: nothing to plan`, body: ['no model has served a request yet', ...plan.notes].join('\n') };
  const now = total(plan.models, 'now');
  const planned = total(plan.models, 'planned');
  const by = plan.policy === undefined ? '' : ` by ${plan.policy}`;
  const head = `${state}${by}: ${planned.usdPerHour.toPrecision(3)} USD/h instead of ${now.usdPerHour.toPrecision(3)} (${change(planned.usdPerHour, now.usdPerHour)}), response ${planned.responseS.toFixed(3)} s instead of ${now.responseS.toFixed(3)} s (${change(planned.responseS, now.responseS)}), queues left out`;
  const standings = (plan.standings ?? []).map((line) => `\n  ${printable(line)}`).join('');
  const lines = plan.models.flatMap(modelLines);
  return {
    head: `${head}${standings}`,
    body: [...lines, ...plan.notes.map((note) => `  note: ${note}`)].map(printable).join('\n'),
  };
}

function modelLines({ model, regions, origins }: RegionModelPlan): string[] {
  const rows = regions.map(({ region, share, roundTripS, usdKwh, replicas, warm }) => {
    const name = (region === '' ? '(no region)' : region).padEnd(16);
    const trip = `${(1e3 * roundTripS).toFixed(0)} ms`;
    return `    ${name} ${(100 * share).toFixed(0).padStart(3)} %  ${trip.padStart(7)}  ${usdKwh.toFixed(3)} USD/kWh  ${replicas} nodes, ${warm} to keep warm`;
  });
  const named = origins.filter(({ origin }) => origin !== '');
  const own = (origins.length < 2 ? [] : named).map(({ origin, shares }) => {
    const parts = Object.entries(shares).filter(([, share]) => share > 0);
    const row = parts.map(([region, share]) => `${region || '(no region)'} ${(100 * share).toFixed(0)} %`);
    return `    requests of ${origin}: ${row.join(', ')}`;
  });
  return [`  ${model}`, ...rows, ...own];
}

/** Mean over the models, weighted by requests. */
function total(models: readonly RegionModelPlan[], which: 'now' | 'planned'): RegionPlanOutcome {
  const requests = models.reduce((sum, { expected }) => sum + expected, 0);
  return models.reduce(
    (sum, model) => ({
      responseS:
        sum.responseS + (requests > 0 ? model.expected / requests : 1 / models.length) * model[which].responseS,
      usdPerHour: sum.usdPerHour + model[which].usdPerHour,
    }),
    { responseS: 0, usdPerHour: 0 },
  );
}

function change(to: number, from: number): string {
  if (!(from > 0)) return 'unknown';
  const percent = 100 * (to / from - 1);
  return `${percent > 0 ? '+' : ''}${percent.toFixed(0)} %`;
}
