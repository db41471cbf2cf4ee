/** `otela-gateway factory`: the state of autoscalers, and why they decided what they did. */
import * as z from 'zod';
import { type Command, EXIT_DONE, parseLine } from '../../shared/command-line/index.ts';
import { modelReport } from '../../shared/factory/factory-exchange.ts';
import { printable } from '../../shared/terminal/printable.ts';
import { askGateway, CONNECTION_FLAGS, targetAt } from './api-client.ts';

/** Number of decisions that are shown per autoscaler; --json shows all. */
const DECISIONS = 5;

const factorySchema = z.looseObject({
  id: z.string(),
  provider: z.string(),
  reported_at: z.string(),
  silent: z.boolean(),
  models: z.array(modelReport),
  decisions: z.array(z.object({ at: z.string(), text: z.string() })),
  demand: z.array(z.looseObject({ model: z.string(), waiting: z.number(), queued: z.number() })),
});
const listSchema = z.object({ data: z.array(factorySchema) });

export const FACTORY_COMMAND: Command = {
  summary: 'show the models, jobs and decisions of autoscalers',
  examples: `

  otela-gateway factory                                        models with their state and estimate, and the newest decisions
  otela-gateway factory --json | jq '.jobs[] | select(.state == "failed") | .log_tail'`,
  flags: CONNECTION_FLAGS,
  run: factoryCommand,
};

async function factoryCommand(args: readonly string[]): Promise<number> {
  const target = targetAt('/admin/factory', parseLine(args, CONNECTION_FLAGS).values);
  const { data } = listSchema.parse(await askGateway(target, 'GET', ''));
  for (const factory of data) {
    if (target.json) console.log(JSON.stringify(factory));
    else for (const line of linesOf(factory)) console.log(printable(line));
  }
  if (data.length === 0 && !target.json) console.error('no factory has sent a report to this gateway');
  return EXIT_DONE;
}

/** The lines contain text from autoscalers, so callers must replace control characters before printing them. */
function linesOf({
  id,
  provider,
  reported_at,
  silent,
  models,
  decisions,
  demand,
}: z.infer<typeof factorySchema>): string[] {
  const wanted = new Map(demand.map((one) => [one.model, one.waiting + one.queued]));
  const rows = models.map((model) => {
    const ready = `${model.ready}/${model.max} ready, ${model.pending} pending`;
    const estimate = model.estimate_ms === undefined ? '-' : `${Math.round(model.estimate_ms / 1_000)} s`;
    const waiting = `${wanted.get(model.id) ?? 0} waiting`;
    return `  ${[model.id, model.state, ready, waiting, estimate, model.reason ?? ''].join('  ')}`.trimEnd();
  });
  const why = decisions.slice(-DECISIONS).map(({ at, text }) => `  ${at}  ${text}`);
  return [`${id}  ${provider}  ${silent ? 'silent since' : 'reported'} ${reported_at}`, ...rows, ...why];
}
