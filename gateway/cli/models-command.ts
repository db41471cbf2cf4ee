/** `otela-gateway models …`: which node runs which model, and loading, unloading and moving models by hand. */
import * as z from 'zod';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { type ApiTarget, askGateway, CONNECTION_FLAGS, targetAt } from './api-client.ts';
import { isStdoutClosed } from './closed-stdout.ts';
import { NODE_FIELDS, readNodes } from './read-nodes.ts';
import { Table } from './table.ts';

const nodeSchema = z.looseObject({
  ...NODE_FIELDS,
  models: z.array(
    z.object({
      id: z.string(),
      state: z.string(),
      parent: z.string().optional(),
      load_ms: z.number().optional(),
      reason: z.string().optional(),
    }),
  ),
  labels: z.record(z.string(), z.string()),
});

const replicaSchema = z.object({
  model: z.string(),
  session: z.string(),
  deployment: z.object({ id: z.string(), template: z.string(), state: z.string() }).nullable(),
  state: z.string().optional(),
  from: z.string().optional(),
});

const OPTIONS = {
  node: { value: 'SESSION', help: 'load: the idle node; unload, move: the node that runs the model' },
  to: { value: 'SESSION', help: 'move: the idle node' },
  template: { value: 'T', help: 'load, move: only this deployment template' },
  set: { value: 'NAME=VALUE', repeat: true, help: 'load, move: a parameter of the template, for example tp=4' },
  sleep: { value: '1|2', takes: ['1', '2'], help: 'unload: the engine sleeps; 2 frees the memory of the machine, too' },
  'drain-seconds': { value: 'N', help: 'unload, move: maximum wait for running requests; default 60' },
} as const satisfies Flags;
const FLAGS = { ...OPTIONS, ...CONNECTION_FLAGS } as const satisfies Flags;
const USAGE = 'list | load MODEL | unload MODEL | move MODEL';

/** The flags of each verb, without the connection flags. */
const TAKES: Readonly<Record<string, readonly (keyof typeof OPTIONS)[]>> = {
  list: [],
  load: ['node', 'template', 'set'],
  unload: ['node', 'sleep', 'drain-seconds'],
  move: ['node', 'to', 'template', 'set', 'drain-seconds'],
};

export const MODELS_COMMAND: Command = {
  summary: 'list, load, unload or move models on nodes',
  examples: `${USAGE}

  otela-gateway models list
  otela-gateway models load Qwen/Qwen3-8B                         on an idle node that has a template for it
  otela-gateway models load Qwen/Qwen3-8B --node SESSION --template vllm --set tp=4
  otela-gateway models unload Qwen/Qwen3-8B --node SESSION        finishes running requests; the node becomes idle
  otela-gateway models unload Qwen/Qwen3-8B --sleep 1             frees its GPUs; load, or a request, wakes it in seconds
  otela-gateway models load org/adapter                           a LoRA adapter of a node's --lora-dir
  otela-gateway models move Qwen/Qwen3-8B --node SESSION --to SESSION

Nodes start and end deployments if their agents run with --accept-deployments. move loads the model on the new node, and unloads it from the old node when the new one serves it. Providers order only their own nodes.`,
  verbs: Object.keys(TAKES),
  flags: FLAGS,
  run: modelsCommand,
};

async function modelsCommand(args: readonly string[]): Promise<number> {
  const { values, given, words } = parseLine(args, FLAGS, { words: 2 });
  const [verb = '', model] = words;
  const takes = Object.hasOwn(TAKES, verb) ? TAKES[verb] : undefined;
  if (takes === undefined || (verb === 'list') !== (model === undefined))
    throw new UsageError(`usage: otela-gateway models ${USAGE}`);
  const over = [...given.keys()].find((flag) => flag in OPTIONS && !takes.some((one) => one === flag));
  if (over !== undefined) throw new UsageError(`otela-gateway models ${verb} takes no --${over}`);
  if (model === undefined) return listModels(targetAt('/admin/nodes', values));
  const { node, to, template } = values;
  const drain = { ...drainMs(values['drain-seconds']), ...sleepLevel(values.sleep) };
  const place = verb === 'move' ? { from: node, to } : { session: node };
  const start = verb === 'unload' ? {} : { template, parameters: parametersOf(values.set) };
  const target = targetAt('/admin/replicas', values);
  const answer = await askGateway(target, 'POST', `/${verb}`, { model, ...place, ...start, ...drain });
  console.log(target.json ? JSON.stringify(answer) : sentence(verb, replicaSchema.parse(answer)));
  return EXIT_DONE;
}

function sentence(verb: string, { model, session, deployment, state, from }: z.infer<typeof replicaSchema>): string {
  if (deployment === null) return `${session}  ${verb}s ${model}${state === undefined ? '' : ` (${state})`}`;
  const { id, template } = deployment;
  if (verb === 'unload') return `${session}  unloads ${model} (deployment ${id})`;
  const loads = `${session}  loads ${model} (deployment ${id}, template ${template})`;
  return from === undefined ? loads : `${loads}\n${from}  unloads it when the new node serves it`;
}

function drainMs(text: string | undefined): { drain_ms?: number } {
  if (text === undefined) return {};
  if (!/^\d{1,5}$/.test(text)) throw new UsageError('--drain-seconds must be a whole number of seconds');
  return { drain_ms: Number(text) * 1_000 };
}

function sleepLevel(text: string | undefined): { sleep?: number } {
  if (text === undefined) return {};
  if (text !== '1' && text !== '2') throw new UsageError('--sleep must be 1 or 2');
  return { sleep: Number(text) };
}

/** Reads `tp=4` as a number, and other values as text. @throws UsageError */
function parametersOf(given: readonly string[]): Record<string, string | number> {
  const entries = given.map((text) => {
    const [, name, value] = /^([a-z][a-z0-9_]*)=(.+)$/s.exec(text) ?? [];
    if (name === undefined || value === undefined) throw new UsageError(`--set ${text} is not NAME=VALUE`);
    return [name, /^-?\d{1,15}$/.test(value) ? Number(value) : value] as const;
  });
  return Object.fromEntries(entries);
}

async function listModels(target: ApiTarget): Promise<number> {
  const table = new Table(['model', 'state', 'parent', 'session', 'provider', 'cluster', 'deployment', 'note']);
  for await (const { session, state, provider, cluster, models, labels } of readNodes(
    target,
    new URLSearchParams(),
    nodeSchema,
  )) {
    if (isStdoutClosed()) return EXIT_DONE;
    if (state === 'LEFT') continue;
    for (const { id, state: how, ...facts } of models) {
      const deployment = labels['otela.deployment'] ?? null;
      const shown = state === 'DOWN' ? 'draining' : how;
      const one = { model: id, state: shown, session, provider, cluster, deployment, ...facts };
      const loads = facts.load_ms === undefined || how === 'ready' ? '' : `ready in ${facts.load_ms} ms`;
      const note = facts.reason ?? loads;
      if (target.json) console.log(JSON.stringify(one));
      else table.add([id, shown, facts.parent ?? '-', session, provider, cluster, deployment ?? '-', note]);
    }
  }
  if (!target.json) table.flush();
  return EXIT_DONE;
}
