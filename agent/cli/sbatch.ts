/** `otela-agent sbatch`: a job script for this user's gateway, printed or submitted to Slurm. */

import { spawn } from 'node:child_process';
import { resolve as absolute } from 'node:path';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { gpuRequest } from '../../shared/slurm/gpu-gres.ts';
import {
  directiveExpression,
  directiveWord,
  ENGINE_ARGUMENTS_MAX,
  JOB_CONTAINERS,
  JOB_ENGINES,
  type JobRequest,
  jobScript,
  SBATCH_OPTIONS_MAX,
} from '../../shared/slurm/job-script.ts';
import { siteModel } from '../../shared/slurm/site-profile.ts';
import { COMMAND_FLAG } from '../config/all-settings.ts';
import { EXIT_ENGINE } from '../config/exit-codes.ts';
import { GATEWAY_SETTINGS, gatewayUrl, TOKEN_SETTINGS } from '../config/gateways-config.ts';
import type { Env, GivenSettings } from '../config/setting.ts';
import { readSettingValues } from '../config/setting-sources.ts';
import type { CommandContext } from './command-context.ts';
import { fromSite, siteProfile, withSite } from './sbatch-site.ts';

const FLAGS = {
  model: { value: 'NAME', help: 'name of the model, as the engine uses it' },
  engine: {
    value: JOB_ENGINES.join('|'),
    takes: JOB_ENGINES,
    otherwise: JOB_ENGINES[0],
    help: 'engine that the job starts',
  },
  gpus: { value: '[TYPE:]N', otherwise: '1', help: 'GPUs of one node; with a GPU type of Slurm, for example a100:4' },
  partition: { value: 'NAME', otherwise: "the cluster's default", help: 'partition of the job' },
  account: { value: 'NAME', otherwise: "the cluster's default", help: 'account that pays for the job' },
  qos: { value: 'NAME', otherwise: "the cluster's default", help: 'quality of service' },
  constraint: { value: 'FEATURES', help: "features of the node, in Slurm's form: 'a100|h100'" },
  mem: { value: 'AMOUNT', otherwise: "the partition's default", help: 'memory of the node, for example 64G' },
  cpus: { value: 'N', otherwise: "the partition's default", help: 'CPU cores for the engine' },
  time: { value: 'LIMIT', otherwise: '04:00:00', help: 'time limit of the job' },
  'sbatch-option': {
    value: 'OPTION',
    repeat: true,
    help: 'another option of sbatch, for example reservation=maint; repeat',
  },
  container: {
    value: JOB_CONTAINERS.join('|'),
    takes: JOB_CONTAINERS,
    otherwise: JOB_CONTAINERS[0],
    help: 'container that the engine runs in',
  },
  image: {
    value: 'FILE',
    takes: 'file',
    otherwise: 'vllm.sif; for enroot vllm.sqsh; for edf vllm',
    help: 'image, or environment definition file',
  },
  gateway: { value: 'URL', help: 'URL of the gateway; also from OTELA_GATEWAY or the configuration file' },
  'token-file': {
    value: 'FILE',
    takes: 'file',
    otherwise: '~/.otela-token',
    help: 'file with the join token; the job reads it, and the script contains only its path',
  },
  config: { value: 'FILE', takes: 'file', help: 'configuration file' },
  'no-site': { help: "do not use the gateway's profile of this cluster" },
  submit: { help: 'submit the script with sbatch and print its output' },
  json: { help: 'print {"script"}; with --submit, {"job", "script"}' },
  ...COMMAND_FLAG,
} as const satisfies Flags;
/** Bound of sbatch's output, which is one line. */
const OUTPUT_MAX_BYTES = 64 * 1024;

export const SBATCH_COMMAND: Command<CommandContext> = {
  summary: 'print a job script for Slurm, or submit it',
  examples: `--model NAME [flags] [-- ENGINE FLAGS…]

Prints a job script. What no flag says comes from the gateway's profile of this cluster, if the operator wrote one. Check it, then submit it:
  otela-agent sbatch --model Qwen/Qwen3-8B > job.sh && sbatch job.sh
  otela-agent sbatch --gateway https://gw.example.org --model Qwen/Qwen3-8B --gpus 1 --time 04:00:00 > job.sh && sbatch job.sh
  otela-agent sbatch --gateway https://gw.example.org --model Qwen/Qwen3-8B --submit`,
  flags: FLAGS,
  run: sbatchCommand,
};

async function sbatchCommand(argv: readonly string[], { env, io }: CommandContext): Promise<number> {
  const { given, values, command } = parseLine(argv, FLAGS);
  const site = values['no-site'] ? undefined : await siteProfile(settingsOf(given, env), env, complain(io));
  const requestedJob = requested(withSite(given, site), settingsOf(given, env));
  const own = siteModel(site ?? {}, requestedJob.model)?.arguments ?? [];
  const script = jobScript({
    ...requestedJob,
    ...fromSite(site),
    engineArguments: engineArguments([...own, ...(command ?? [])]),
  });
  if (!values.submit) {
    io.out(values.json ? JSON.stringify({ script }) : script.trimEnd());
    return EXIT_DONE;
  }
  const { code, said: output } = await submit(script, env);
  if (code !== 0) {
    io.stderr.write(`otela-agent: sbatch: ${output.trim()}\n`);
    return EXIT_ENGINE;
  }
  const job = /Submitted batch job (\d+)/.exec(output)?.[1] ?? '';
  io.out(values.json ? JSON.stringify({ job, script }) : output.trim());
  return EXIT_DONE;
}

/** @throws UsageError for mistakes that would otherwise appear only when the job starts, after its wait in the queue */
function requested(given: ReadonlyMap<string, readonly string[]>, settings: GivenSettings): JobRequest {
  const one = (name: keyof typeof FLAGS) => given.get(name)?.at(-1)?.trim();
  const gateways = settings.get(GATEWAY_SETTINGS.gateways.env)?.values ?? [];
  if (gateways.length === 0) throw new UsageError('a gateway is missing: give --gateway URL or set OTELA_GATEWAY');
  for (const gateway of gateways) gatewayUrl(gateway);
  const model = one('model');
  if (!model) throw new UsageError('a model is missing: give --model NAME');
  if (model.startsWith('-')) throw new UsageError(`--model: the engine would read "${model}" as a flag`);
  const gpus = gpuRequest(one('gpus') ?? '1');
  if (gpus === undefined)
    throw new UsageError(`--gpus: "${one('gpus')}" is not a number of GPUs on one node such as 4 or a100:4`);
  const time = one('time') ?? '04:00:00';
  if (!/^(\d{1,5}-)?\d{1,7}(:\d{1,2}){0,2}$/.test(time))
    throw new UsageError(`--time: "${time}" is not a time limit such as 04:00:00 or 1-12:00:00`);
  const container = among('container', one('container'), JOB_CONTAINERS);
  const image = one('image') ?? '';
  if (image !== '' && container === 'none') throw new UsageError('--image needs --container apptainer, enroot or edf');
  const tokenFile = settings.get(TOKEN_SETTINGS.tokenFile.env)?.values.at(-1);
  return {
    gateway: gateways.map(oneLine('--gateway')).join(','),
    model: oneLine('--model')(model),
    engine: among('engine', one('engine'), JOB_ENGINES),
    gpus: gpus.count,
    ...(gpus.type === undefined ? {} : { gpuType: gpus.type }),
    ...place(one),
    sbatchOptions: sbatchOptions(given.get('sbatch-option') ?? []),
    time,
    container,
    image: oneLine('--image')(image),
    ...(tokenFile === undefined ? {} : { tokenFile: oneLine('--token-file')(fromAnywhere(tokenFile)) }),
  };
}

function complain(io: CommandContext['io']): (line: string) => void {
  return (line) => void io.stderr.write(`${line}\n`);
}

function settingsOf(given: ReadonlyMap<string, readonly string[]>, env: Env): GivenSettings {
  return readSettingValues(new Map([...given].filter(([name]) => SETTINGS_ALLOWED.includes(name))), env).values;
}

type PlaceFlag = 'partition' | 'account' | 'qos' | 'constraint' | 'mem' | 'cpus';

/** The job's partition, account and similar options. @throws UsageError */
function place(one: (name: PlaceFlag) => string | undefined) {
  const word = (name: PlaceFlag, what: string, cleaned = directiveWord) => {
    const text = one(name) ?? '';
    if (cleaned(text) !== text) throw new UsageError(`--${name}: "${text}" is not ${what}`);
    return text;
  };
  const cpus = one('cpus');
  if (cpus !== undefined && !/^[1-9]\d{0,4}$/.test(cpus))
    throw new UsageError(`--cpus: "${cpus}" is not a number of CPUs`);
  const memory = one('mem');
  if (memory !== undefined && !/^\d{1,9}[KMGT]?$/i.test(memory))
    throw new UsageError(`--mem: "${memory}" is not an amount of memory such as 64G`);
  return {
    partition: word('partition', 'the name of a partition'),
    account: word('account', 'the name of an account'),
    qos: word('qos', 'the name of a QOS'),
    constraint: word('constraint', "one word in Slurm's form, such as a100|h100", directiveExpression),
    memory: memory ?? '',
    ...(cpus === undefined ? {} : { cpusPerTask: Number(cpus) }),
  };
}

/** Each option is one word such as `reservation=maint`, with or without leading dashes. @throws UsageError */
function sbatchOptions(given: readonly string[]): string[] {
  if (given.length > SBATCH_OPTIONS_MAX)
    throw new UsageError(`--sbatch-option: at most ${SBATCH_OPTIONS_MAX} are allowed`);
  return given.map((text) => {
    const word = text.trim().replace(/^-+/, '');
    if (!/^[a-z]/.test(word) || directiveExpression(word) !== word)
      throw new UsageError(`--sbatch-option: "${text}" is not one word such as reservation=maint or exclusive`);
    return word;
  });
}

/** The words after `--`, which go to the engine. @throws UsageError */
function engineArguments(words: readonly string[]): string[] {
  if (words.length > ENGINE_ARGUMENTS_MAX)
    throw new UsageError(`at most ${ENGINE_ARGUMENTS_MAX} arguments for the engine are allowed`);
  if (words[0] !== undefined && !words[0].startsWith('-'))
    throw new UsageError(
      `sbatch writes the engine's command itself: after --, give only flags of the engine, not "${words[0]}"`,
    );
  return words.map(oneLine('--'));
}

const SETTINGS_ALLOWED: readonly string[] = ['gateway', 'token-file', 'config'];

/** An absolute path, because the job may begin in another directory than this command. */
function fromAnywhere(path: string): string {
  return path.startsWith('~/') ? path : absolute(path);
}

function oneLine(flag: string): (text: string) => string {
  return (text) => {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are refused
    if (/[\u0000-\u001f\u007f]/.test(text))
      throw new UsageError(`${flag}: control characters such as line breaks are not allowed`);
    return text;
  };
}

function among<T extends string>(flag: string, text: string | undefined, names: readonly [T, ...T[]]): T {
  const [first] = names;
  const found = text === undefined ? first : names.find((name) => name === text);
  if (found === undefined) throw new UsageError(`--${flag}: "${text}" is not one of ${names.join(', ')}`);
  return found;
}

function submit(script: string, env: Env): Promise<{ code: number; said: string }> {
  return new Promise((resolve) => {
    const child = spawn('sbatch', [], { env: { ...env }, stdio: ['pipe', 'pipe', 'pipe'] });
    let output = '';
    const hear = (piece: Buffer) => {
      output = (output + piece.toString('utf8')).slice(-OUTPUT_MAX_BYTES);
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.stdin.on('error', () => {}); // sbatch ended before it read its input; its exit code shows that
    child.on('error', (error) => resolve({ code: 1, said: `${error.message}; is this a login node of the cluster?` }));
    child.on('close', (code) => resolve({ code: code ?? 1, said: output }));
    child.stdin.end(script);
  });
}
