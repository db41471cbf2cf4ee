/** A job's script, run by a real bash with a mock agent that prints its arguments. */
import { spawnSync } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { placementsOf } from '../../../factory/config/model-placements.ts';
import { parseConfig } from '../../../factory/config/read-config.ts';
import { jobContext, jobContextId } from '../../../factory/recipes/job-context.ts';
import { scriptBody } from '../../../factory/recipes/job-script.ts';
import { CONFIG } from '../../support/factory/config-text.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';

afterEach(endAll);

const LLAMA = 'meta-llama/Llama-3.1-8B-Instruct';
const AGENT = `#!/usr/bin/env bash
printf '%s\\0' "$@" "TOKEN_FILE=$OTELA_TOKEN_FILE" "GREETING=$GREETING" "KEY=\${#VLLM_API_KEY}"
`;

/** Places of a model in a file, in the order of its engines. */
function placesIn(text: string, model = LLAMA) {
  const read = parseConfig(text);
  if ('faults' in read) throw new Error(JSON.stringify(read.faults));
  const found = read.config.models.find(({ id }) => id === model);
  if (found === undefined) throw new Error(`no model ${model}`);
  return placementsOf(read.config, found);
}

/** The agent's arguments in the job of a model's first place. */
async function told(
  text: string,
  more: { agent?: string; jobId?: string; tmpdir?: string } = {},
  model = LLAMA,
): Promise<string[]> {
  const directory = await temporaryDirectory();
  const agent = join(directory, more.agent ?? 'otela-agent');
  writeFileSync(agent, AGENT);
  chmodSync(agent, 0o755);
  const [place] = placesIn(text, model);
  if (place === undefined) throw new Error('no place');
  const context = jobContext(model, place);
  const body = scriptBody({
    factory: 'pool',
    gateway: 'https://otela.example.org',
    cluster: { ...place.cluster, agent: [agent] },
    gpu: place.pool.gpu,
    context,
    contextId: jobContextId(context),
    jobId: more.jobId ?? '$SLURM_JOB_ID',
  });
  const env = {
    PATH: process.env.PATH,
    HOME: '/home/me',
    SLURM_JOB_ID: '77',
    SLURM_CPUS_ON_NODE: '64',
    SLURM_TMPDIR: more.tmpdir,
  };
  const run = spawnSync('bash', ['-s'], { input: body, encoding: 'utf8', env, cwd: directory });
  if (run.status !== 0) throw new Error(`${run.status}: ${run.stderr}\n${body}`);
  return run.stdout.split('\0').slice(0, -1);
}

it('the agent is told whose job it is, and its engine gets the port of the job', async () => {
  const words = await told(CONFIG);
  const engine = words.slice(words.indexOf('--') + 1, -3);
  const port = words[words.indexOf('--engine-port') + 1] ?? '';
  expect(port).toBe('20177');
  expect(engine).toEqual(
    `vllm serve ${LLAMA} --served-model-name ${LLAMA} --tensor-parallel-size 1 --host 127.0.0.1 --port ${port}`.split(
      ' ',
    ),
  );
  expect(words).toEqual(expect.arrayContaining(['factory=pool', 'factory-job=alps/77']));
  // Its API requires a key, because other users of the node reach loopback too.
  expect(words.at(-1)).toBe('KEY=48');
});

it('whatever a file holds, the shell of the job takes it for words', async () => {
  const evil = `it's "$(touch /tmp/otela-evil)" \`id\`; exit 3 # $HOME`;
  const text = CONFIG.replace(
    'load = "2m"',
    `load = "2m"\nenvironment = { GREETING = ${JSON.stringify(evil)} }`,
  ).replace(
    'gpus = 1\nengine = "vllm"',
    `gpus = 1\nengine = "vllm"\narguments = ["--chat-template", ${JSON.stringify(evil)}]`,
  );
  const words = await told(text, { agent: "the agent's $HOME" });
  expect(words).toContain(evil);
  expect(words).toContain(`GREETING=${evil}`);
});

it('a home directory is that of the job, not that of the factory', async () => {
  const text = CONFIG.replace('max_pending = 2', 'max_pending = 2\njoin_token_file = "~/.otela-join-token"');
  expect(await told(text)).toContain('TOKEN_FILE=/home/me/.otela-join-token');
});

it.each([
  ['NVIDIA', 'H100', '--nv'],
  ['AMD', 'MI300X', '--rocm'],
])('a container of Apptainer sees the GPUs of %s', async (_, gpu, flag) => {
  const text = CONFIG.replaceAll('"H100"', `"${gpu}"`).replace(
    'gpus = 1\nengine = "vllm"',
    'gpus = 1\nengine = "vllm"\ncontainer = "apptainer"\nimage = "/images/vllm.sif"',
  );
  const words = await told(text);
  expect(words.slice(words.indexOf('--') + 1, words.indexOf('vllm'))).toEqual([
    'apptainer',
    'exec',
    flag,
    '/images/vllm.sif',
  ]);
});

it('an environment definition file of CSCS starts the engine in a step of the job', async () => {
  const text = CONFIG.replace(
    'gpus = 1\nengine = "vllm"',
    'gpus = 1\nengine = "vllm"\ncontainer = "edf"\nimage = "~/.edf/vllm.toml"',
  );
  const words = await told(text);
  expect(words.slice(words.indexOf('--') + 1, words.indexOf('vllm'))).toEqual([
    ...['srun', '--ntasks=1', '--unbuffered', '--cpus-per-task=64', '--environment=/home/me/.edf/vllm.toml'],
  ]);
});

it.each([
  ['apptainer', ['--bind', 'PLACE']],
  ['enroot', ['--mount', 'PLACE:PLACE']],
])('a container of %s sees the hub cache, named directories and what the agent pulls', async (container, option) => {
  const [cache, scratch, local] = [await temporaryDirectory(), await temporaryDirectory(), await temporaryDirectory()];
  const text = CONFIG.replace(
    'weights = "meta-llama/Llama-3.1-8B-Instruct"',
    'weights = "hub:meta-llama/Llama-3.1-8B-Instruct"',
  )
    .replace(
      'max_pending = 2',
      `max_pending = 2\nenvironment = { HF_HOME = "${cache}" }\nmounts = ["${scratch}", "/is/not/here"]`,
    )
    .replace(
      'gpus = 1\nengine = "vllm"',
      `gpus = 1\nengine = "vllm"\ncontainer = "${container}"\nimage = "/images/vllm"`,
    );
  const words = await told(text, { tmpdir: local });
  for (const place of [cache, scratch, local])
    expect(words.join(' ')).toContain(option.map((word) => word.replaceAll('PLACE', place)).join(' '));
  expect(words.join(' ')).not.toContain('/is/not/here');
  expect(words.indexOf('/images/vllm')).toBe(words.indexOf('vllm') - 1);
});

it('a recipe with an engine for each kind of GPU runs on each what it names for it', () => {
  const three = `${CONFIG.replace('[recipes.llama]', '[[clusters.alps.pools]]\nname = "amd"\ngpu = "MI300X"\ngpus_per_node = 8\n\n[recipes.llama]')}
[[recipes.llama.engines]]
gpu = ["MI300X"]
gpus = 1
engine = "vllm"
container = "apptainer"
image = "/images/vllm-rocm.sif"
`;
  // Its table is at the end of the file, after the models.
  const places = placesIn(three);
  expect(places.map(({ pool, engine }) => [pool.gpu, engine.engine, engine.image])).toEqual([
    ['H100', 'vllm', undefined],
    ['V100', 'lmdeploy', undefined],
    ['MI300X', 'vllm', '/images/vllm-rocm.sif'],
  ]);
});

it('a context is named by its content: equal ones have one name, however their tables are ordered', () => {
  const of = (text: string) => placesIn(text).map((place) => jobContextId(jobContext(LLAMA, place)));
  const variables = (order: string) => CONFIG.replace('load = "2m"', `load = "2m"\nenvironment = { ${order} }`);
  const [first, second] = of(CONFIG);
  expect(first).toMatch(/^[0-9a-f]{12}$/);
  expect(first).not.toBe(second);
  expect(of(variables('A = "1", B = "2"'))).toEqual(of(variables('B = "2", A = "1"')));
  expect(of(variables('A = "1"'))[0]).not.toBe(first);
  const [longer] = of(CONFIG.replace('gpus = 1\nengine', 'gpus = 1\narguments = ["--max-model-len", "8192"]\nengine'));
  expect(longer).not.toBe(first);
  // The load time and the idle time are not part of it.
  expect(of(CONFIG.replace('load = "2m"', 'load = "9m"').replace('idle = "10m"', 'idle = "1m"'))[0]).toBe(first);
});

const FUNCTIONS = `${CONFIG}
[recipes.python]
[[recipes.python.engines]]
gpu = ["H100"]
gpus = 4
allow_functions = ["p1", "user:u$(touch evil)"]
arguments = ["--functions-network", "--weights-dir", "~/w d"]

[models."function:"]
recipe = "python"
lines_per_job = 1000
`;

it('a job of functions runs no engine: its agent allows the projects, also with a hostile name', async () => {
  const text = FUNCTIONS.replace('user:u$(touch evil)', 'user:u<evil>');
  const words = await told(text, {}, 'function:');
  expect(words.slice(words.indexOf('functions=on'), -3)).toEqual([
    'functions=on',
    ...['--allow-functions', 'p1', '--allow-functions', 'user:u<evil>'],
    ...['--functions-network', '--weights-dir', '/home/me/w d'],
  ]);
  expect(words).not.toContain('--engine-port');
  expect(() => placesIn(FUNCTIONS, 'function:')).toThrow('must be one word');
});
