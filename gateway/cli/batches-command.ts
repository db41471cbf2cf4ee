/** `otela-gateway batches`: calls `/v1/batches` from the shell. */
import * as z from 'zod';
import { BATCH_ENDPOINTS } from '../../shared/batch/batch-line.ts';
import { type Command, type Flags, type ParsedFlags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { printable } from '../../shared/terminal/printable.ts';
import {
  askGateway,
  CONNECTION_FLAGS,
  type ListRow,
  listOrGet,
  printAnswer,
  refuseIgnoredFlags,
  targetAt,
} from './api-client.ts';
import { dateOf, putFile } from './files-command.ts';

const VERBS = ['create', 'list', 'get', 'cancel', 'pause', 'resume'] as const;
const FILE_ID = /^file-[0-9a-z]+$/;

const FLAGS = {
  endpoint: {
    value: 'E',
    takes: BATCH_ENDPOINTS.map((path) => path.slice('/v1/'.length)),
    help: 'create: endpoint for the lines, for example chat/completions',
  },
  metadata: { value: 'K=V,…', help: 'create: metadata that is shown with the batch' },
  window: { value: 'TIME', help: 'create: time in which the batch must end, 1h to 30d; default: 24h' },
  ...CONNECTION_FLAGS,
} as const satisfies Flags;

export const BATCHES_COMMAND: Command = {
  summary: 'run many requests from a file in the background',
  examples: `create FILE --endpoint E | list | get ID | cancel ID | pause ID | resume ID

  otela-gateway batches create claims.jsonl --endpoint chat/completions
  otela-gateway batches create file-6f… --endpoint embeddings --metadata study=claims
  otela-gateway batches get batch_1a…
  otela-gateway batches list

FILE is a local file, which is uploaded first, or the id of an uploaded file. To get the responses: otela-gateway files content OUTPUT_FILE_ID.`,
  verbs: VERBS,
  flags: FLAGS,
  run: batchesCommand,
};

const batchSchema = z.looseObject({
  id: z.string(),
  status: z.string(),
  endpoint: z.string(),
  model: z.string().nullable(),
  created_at: z.number(),
  usage: z.looseObject({ input_tokens: z.number(), output_tokens: z.number() }).nullish(),
  request_counts: z.object({ total: z.number(), completed: z.number(), failed: z.number() }),
  x_otela: z.looseObject({
    paused: z.boolean(),
    lines_per_s: z.number(),
    estimated_end: z.number().nullable(),
    waiting_for: z.string().nullish(),
  }),
});

const HEAD = ['id', 'status', 'done', 'failed', 'pace', 'end', 'endpoint', 'model', 'created', 'used', 'waits for'];
const NONE = '–';

/** The rates of a finished batch are omitted. */
const row: ListRow = (value) => {
  const {
    id,
    status,
    endpoint,
    model,
    created_at,
    usage,
    request_counts: counts,
    x_otela: more,
  } = batchSchema.parse(value);
  const tokens = (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0);
  const done = `${counts.completed}/${counts.total}`;
  const runs = status === 'in_progress';
  const { paused, lines_per_s, estimated_end, waiting_for } = more;
  return [
    id,
    status,
    done,
    `${counts.failed} failed`,
    !runs ? NONE : paused ? 'paused' : `${lines_per_s} lines/s`,
    !runs || estimated_end === null ? NONE : `ends ${dateOf(estimated_end)}`,
    endpoint.replace('/v1/', ''),
    model ?? NONE,
    dateOf(created_at),
    `${tokens} tokens`,
    waiting_for ?? NONE,
  ];
};

async function batchesCommand(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, FLAGS, { words: 2 });
  const [verb] = words;
  const target = targetAt('/v1/batches', values);
  refuseIgnoredFlags(verb, {
    endpoint: [values.endpoint, 'create'],
    metadata: [values.metadata, 'create'],
    window: [values.window, 'create'],
  });
  const act = async (_: string, path: string) =>
    printAnswer(target, row, await askGateway(target, 'POST', `${path}/${verb}`));
  const usage = 'batches create FILE --endpoint E|list|get ID|cancel ID|pause ID|resume ID';
  return listOrGet(target, { head: HEAD, row }, words, usage, {
    cancel: act,
    pause: act,
    resume: act,
    create: async (file) => printAnswer(target, row, await create(target, file, values)),
  });
}

async function create(
  target: ReturnType<typeof targetAt>,
  file: string,
  { endpoint, metadata, window }: ParsedFlags<typeof FLAGS>,
): Promise<unknown> {
  if (endpoint === undefined) throw new UsageError('--endpoint is missing, for example --endpoint chat/completions');
  const pairs = metadata === undefined ? undefined : pairsOf(metadata);
  let input = file;
  if (!FILE_ID.test(file)) {
    input = z.object({ id: z.string() }).parse(await putFile({ ...target, path: '/v1/files' }, file)).id;
    console.error(printable(`${file} is ${input}`));
  }
  return askGateway(target, 'POST', '', {
    input_file_id: input,
    endpoint: endpoint.startsWith('/') ? endpoint : `/v1/${endpoint}`,
    completion_window: window ?? '24h',
    ...(pairs === undefined ? {} : { metadata: pairs }),
  });
}

function pairsOf(text: string): Record<string, string> {
  return Object.fromEntries(
    text.split(',').map((pair) => {
      const at = pair.indexOf('=');
      if (at < 1) throw new UsageError(`--metadata ${text}: write pairs such as study=claims,run=2`);
      return [pair.slice(0, at), pair.slice(at + 1)];
    }),
  );
}
