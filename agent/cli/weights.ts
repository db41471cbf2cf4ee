/** `otela-agent weights`: lists, pulls, deletes and serves weights on this machine. */
import {
  type Command,
  EXIT_DONE,
  type Flags,
  JSON_FLAG,
  parseLine,
  UsageError,
} from '../../shared/command-line/index.ts';
import { parseSource, sourceText } from '../../shared/weights/weights-source.ts';
import { START_FLAGS } from '../config/all-settings.ts';
import { EXIT_ENGINE } from '../config/exit-codes.ts';
import { SOURCES_MAX } from '../config/weights-config.ts';
import { ask, type LocalAgent } from '../host/control-client.ts';
import type { PullStatus, WeightsReport } from '../host/control-protocol.ts';
import type { CommandContext } from './command-context.ts';
import { bytesText, progressBar } from './progress-bar.ts';
import { SESSION_FLAG, selectAgents } from './select-agents.ts';
import { START_COMMAND } from './start.ts';
import { fetchWeights } from './weights-fetch.ts';

const VERBS = ['pull', 'fetch', 'serve', 'ls', 'gc'] as const;
const KINDS = ['hub', 'dir', 's3'] as const;
/** Flags of `weights serve`, which runs an agent without an engine. */
const SERVE_FLAGS = [
  'gateway',
  'token-file',
  'cluster',
  'mesh',
  'peer',
  'weights-dir',
  'weights-max',
  'weights-rate',
  'weights-uploads',
  'weights-clusters',
  'config',
];
const FLAGS = {
  from: {
    value: 'hub|dir|s3',
    takes: KINDS,
    help: 'source of NAME: hub: a Hugging Face repository, dir: a directory, s3: BUCKET/PREFIX',
  },
  ...SESSION_FLAG,
  ...JSON_FLAG,
} as const satisfies Flags;

export const WEIGHTS_COMMAND: Command<CommandContext> = {
  summary: 'pull, serve, list or delete weights on local disk',
  examples: `pull NAME [--from hub|dir|s3] | fetch NAME | serve [NAME…] | ls | gc [NAME] [--session PREFIX] [--json]

Uses your agent on this machine that stores weights (otela-agent start --weights-dir DIR).
  otela-agent weights pull Qwen/Qwen3-8B                    # hub:Qwen/Qwen3-8B@main
  otela-agent weights pull /capstor/models/apertus --from dir
  otela-agent weights ls                                    # models here and on other nodes
  otela-agent weights gc                                    # deletes files that no model here uses
  otela-agent weights gc Qwen/Qwen3-8B                      # deletes a model that no engine here uses

fetch needs no agent that runs. It writes a repository of the hub into your Hugging Face cache (HF_HOME), for example on a login node:
  otela-agent weights fetch Qwen/Qwen3-8B

serve joins as an agent without an engine, for example on a login node. It pulls the named models and serves them to the cluster:
  otela-agent weights serve --gateway https://gw.example.org --token-file ~/.otela-token --weights-dir /local/weights Qwen/Qwen3-8B`,
  verbs: VERBS,
  flags: {
    ...FLAGS,
    ...Object.fromEntries(Object.entries(START_FLAGS).filter(([name]) => SERVE_FLAGS.includes(name))),
  },
  run: weightsCommand,
};

const OWN_FLAGS: Flags = FLAGS;

async function weightsCommand(argv: readonly string[], context: CommandContext): Promise<number> {
  if (argv.find((word) => !word.startsWith('-')) === 'serve') return serve(argv, context);
  const { values, words } = parseLine(argv, FLAGS, { words: 2 });
  const [verb, name] = words;
  const source = name === undefined ? undefined : sourceOf(name, values.from);
  const json = values.json === true;
  const agent = () => keeper(values.session, context);
  switch (verb) {
    case 'pull':
      if (source === undefined)
        throw new UsageError('a model is missing, for example: otela-agent weights pull Qwen/Qwen3-8B');
      return pull(await agent(), source, json, context);
    case 'fetch':
      if (source === undefined)
        throw new UsageError('a model is missing, for example: otela-agent weights fetch Qwen/Qwen3-8B');
      return fetchWeights(source, context);
    case 'ls':
      return list(await agent(), json, context);
    case 'gc':
      return collect(await agent(), source, json, context);
    default:
      throw new UsageError(`the command is otela-agent weights ${VERBS.join('|')}`);
  }
}

/** An agent that stores weights and has no engine. */
function serve(argv: readonly string[], context: CommandContext): Promise<number> | number {
  const { given, values, words } = parseLine(argv, WEIGHTS_COMMAND.flags, { words: SOURCES_MAX + 1 });
  const from = typeof values.from === 'string' ? values.from : undefined;
  const own = Object.keys(OWN_FLAGS);
  const flags = [...given].flatMap(([name, all]) =>
    own.includes(name) ? [] : all.flatMap((one) => [`--${name}`, one]),
  );
  const sources = words.slice(1).flatMap((name) => ['--weights', sourceOf(name, from)]);
  const { OTELA_WEIGHTS: more, OTELA_WEIGHTS_DIR: directory } = context.env;
  if (sources.length === 0 && !given.has('weights-dir') && !more && !directory)
    throw new UsageError('give a model, or --weights-dir DIR to serve all weights in it');
  return START_COMMAND.run([...flags, ...sources], context);
}

/** Converts a source to the form that `parseSource` reads. @throws UsageError */
function sourceOf(name: string, kind: string | undefined): string {
  if (kind !== undefined && !KINDS.some((one) => one === kind))
    throw new UsageError(`--from: "${kind}" is not one of ${KINDS.join(', ')}`);
  const written = parseSource(name);
  const guessed = kind ?? (name.startsWith('/') ? 'dir' : 'hub');
  const source = written ?? parseSource(guessed === 's3' ? `s3://${name}` : `${guessed}:${name}`);
  if (source === undefined)
    throw new UsageError(`"${name}" is not ORG/NAME[@REVISION] (hub), /PATH (dir) or BUCKET/PREFIX (s3)`);
  return sourceText(source);
}

/**
 * Selects the agent that stores the weights.
 * @throws UsageError if no agent stores weights, or if several store them in different directories
 */
async function keeper(prefix: string | undefined, { env }: CommandContext): Promise<LocalAgent> {
  const agents = await selectAgents(prefix, env);
  const [first, second] = agents.filter(({ status }) => status.weights !== undefined);
  if (first === undefined)
    throw new UsageError('none of your agents on this machine stores weights: start one with --weights-dir DIR');
  if (
    second !== undefined &&
    prefix === undefined &&
    first.status.weights?.directory !== second.status.weights?.directory
  )
    throw new UsageError('several agents here store weights; select one with --session PREFIX');
  return first;
}

/** Maximum time between two reports of the agent. The agent reports a pull's progress every second. */
const SILENCE_MS = 60_000;

async function pull({ directory }: LocalAgent, source: string, json: boolean, { io }: CommandContext): Promise<number> {
  let last: PullStatus | undefined;
  const isTerminal = 'isTTY' in io.stderr && io.stderr.isTTY === true;
  try {
    for await (const answer of ask(directory, { op: 'pull', source }, SILENCE_MS)) {
      if (!('ok' in answer && answer.ok) || answer.pull === undefined) continue;
      last = answer.pull;
      if (isTerminal && !json) io.stderr.write(`\r${progressBar(last)}\u001b[K`);
    }
  } finally {
    if (isTerminal && !json) io.stderr.write('\n');
  }
  if (last === undefined || last.state !== 'done') {
    io.stderr.write(`${source}: ${last?.trouble ?? 'the agent has exited'}\n`);
    return EXIT_ENGINE;
  }
  io.out(json ? JSON.stringify(last, null, 2) : `${last.path}`);
  if (!json && !isTerminal)
    io.stderr.write(`${bytesText(last.from_source)} from the source, ${bytesText(last.from_peers)} from other nodes\n`);
  return EXIT_DONE;
}

const ANSWER_MS = 15_000;

async function list({ session, directory }: LocalAgent, json: boolean, { io }: CommandContext): Promise<number> {
  let report: WeightsReport | undefined;
  for await (const answer of ask(directory, { op: 'weights' }, ANSWER_MS))
    if ('ok' in answer && answer.ok) report = answer.weights;
  if (report === undefined) throw new Error('the agent gave no reason');
  if (json) io.out(JSON.stringify(report, null, 2));
  else io.out(table(report, session).join('\n'));
  return EXIT_DONE;
}

function table({ directory, used, limit, held, elsewhere }: WeightsReport, session: string): string[] {
  const lines = [`${directory}  ${bytesText(used)} of ${bytesText(limit)}`];
  const rows = [{ session, held }, ...elsewhere];
  const sources = [...new Set(rows.flatMap((row) => (row.held ?? []).map(({ source }) => source)))].sort();
  for (const source of sources) {
    lines.push('', source);
    for (const row of rows) {
      const one = row.held?.find((model) => model.source === source);
      if (one === undefined) continue;
      const percent = one.bytes === 0 ? 100 : Math.floor((one.here / one.bytes) * 100);
      const notes = [row.session === session ? 'here' : '', one.pinned ? 'in use' : '', one.public ? 'public' : ''];
      lines.push(
        `  ${row.session}  ${percent} % of ${bytesText(one.bytes)}  ${notes.filter(Boolean).join(', ')}`.trimEnd(),
      );
    }
  }
  const silent = rows.filter((row) => row.held === undefined).map((row) => row.session);
  if (silent.length > 0) lines.push('', `did not answer: ${silent.join(', ')}`);
  return lines;
}

async function collect(
  { directory }: LocalAgent,
  source: string | undefined,
  json: boolean,
  { io }: CommandContext,
): Promise<number> {
  for await (const answer of ask(directory, { op: 'collect', ...(source === undefined ? {} : { source }) }, SILENCE_MS))
    if ('ok' in answer && answer.ok && answer.freed !== undefined)
      io.out(json ? JSON.stringify({ freed: answer.freed }) : `${bytesText(answer.freed)} freed`);
  return EXIT_DONE;
}
