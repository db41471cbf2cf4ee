import { expect, it } from 'vitest';
import { placementsOf } from '../../../factory/config/model-placements.ts';
import { parseConfig } from '../../../factory/config/read-config.ts';
import { durationSchema } from '../../../factory/config/value-schemas.ts';
import { timeLimitMs } from '../../../node/batch-systems/time-limit.ts';
import { CONFIG } from '../../support/factory/config-text.ts';

/** The faults of CONFIG with one text replaced, as LINE: TEXT. */
function faults(from: string, to: string): string[] {
  expect(CONFIG).toContain(from);
  const read = parseConfig(CONFIG.replace(from, to));
  return 'faults' in read ? read.faults.map(({ line, text }) => `${line}: ${text}`) : [];
}
const lineOf = (text: string) => CONFIG.slice(0, CONFIG.indexOf(text)).split('\n').length;

it('reads a file, and takes the engine by the kind of GPU', () => {
  const read = parseConfig(CONFIG);
  if ('faults' in read) throw new Error(JSON.stringify(read.faults));
  const { config } = read;
  expect(config.guest).toMatchObject({ submissions_per_minute: 60, short_lived: 120_000, rest: 3_600_000 });
  const [llama] = config.models;
  if (llama === undefined) throw new Error('no model');
  expect(placementsOf(config, llama).map(({ pool, engine }) => [pool.name, engine.engine, engine.gpus])).toEqual([
    ['normal', 'vllm', 1],
    ['old', 'lmdeploy', 2],
  ]);
});

it('names the line and the nearest word of a key that does not exist', () => {
  expect(faults('max_pending = 2', 'max_pendign = 2')).toEqual([
    `${lineOf('max_pending')}: clusters.alps: unknown key max_pendign; did you mean max_pending?`,
  ]);
  expect(faults('idle = "5m"', 'idel = "5m"')[0]).toMatch(
    new RegExp(`^${lineOf('idle = "5m"')}: models.Qwen/Qwen3-8B: unknown key idel; did you mean idle\\?`),
  );
});

it.each([
  ['idle = "10m"', 'idle = 600', /idle/],
  ['idle = "10m"', 'idle = "600"', /not a duration such as 90s/],
  ['time = "08:00:00"', 'time = "8 hours"', /not a time limit/],
  ['launcher = "slurm"', 'launcher = "slrum"', /"slurm"/],
  ['name = "old"', 'name = "old --wrap=x"', /one word/],
  ['max_jobs = 8', 'clusters = "a,b"', /several clusters/],
  ['max_jobs = 8', 'clusters = "all"', /several clusters/],
  ['max_jobs = 8', 'mounts = ["/a b"]', /an absolute path/],
  ['max_jobs = 8', 'transfer_files = ["agent"]', /not an absolute path/],
  ['max_jobs = 8', 'transfer_files = ["/a, /etc/passwd"]', /not an absolute path/],
  ['weights = "Qwen/Qwen3-8B"', 'weights = "a\\nb"', /line breaks/],
  ['state = "state"', 'state = "state"\ntimezone = "Mars/Olympus"', /not a time zone/],
])('refuses %s → %s on its own line', (from, to, message) => {
  const [fault = ''] = faults(from, to);
  expect(fault).toMatch(message);
  expect(Number(fault.split(':')[0])).toBe(lineOf(from) + (to.includes('\n') ? 1 : 0));
});

it('names the line of a text that is no TOML', () => {
  expect(faults('max_jobs = 8', 'max_jobs = ')[0]).toMatch(new RegExp(`^${lineOf('max_jobs')}: `));
  expect(faults('max_jobs = 8', 'max_jobs = 8\nmax_jobs = 9')).toHaveLength(1);
});

it.each([
  ['recipe = "qwen"', 'recipe = "qwne"', 'no recipe qwne; did you mean qwen?'],
  [
    'gpus = 2\nengine = "sglang"',
    'gpus = 8\nengine = "sglang"',
    'needs 8 GPUs on one node; the closest pool is alps/normal with 4',
  ],
  ['gpu = ["H100"]', 'gpu = ["MI300X"]', 'has engines for MI300X; the pools have H100 (alps/normal), V100 (alps/old)'],
  ['gpu = ["H100"]', 'gpu = ["H10O"]', 'there is no GPU H10O; did you mean H100?'],
  ['max = 2', 'max = 2\nmin = 3', 'min 3 is above max 2'],
  ['max = 2', 'max = 50\nmin = 20', 'allow 8 jobs, but min is 20'],
  ['max = 2', 'max = 2\nclusters = ["alsp"]', 'no cluster alsp; did you mean alps?'],
  ['recipe = "qwen"', 'recipe = "llama"', 'have the same recipe'],
  [
    'weights = "Qwen/Qwen3-8B"',
    'weights = "Qwen/Qwen3-8B"\nload = "5h"',
    'it loads for 5h, but its longest job ends after 4h',
  ],
  ['max_jobs = 8', 'max_jobs = 8\ntransfer_files = ["/opt/agent"]', 'transfer_files is for htcondor'],
  ['engine = "sglang"', 'command = ["serve", "--port", "8000"]', 'must contain {{port}}'],
  ['engine = "sglang"', 'container = "apptainer"\nengine = "sglang"', 'has no image'],
  [
    'engine = "sglang"',
    'container = "apptainer"\nimage = "/a.sif"\npacked_environment = "dir:/a.tar"\nengine = "sglang"',
    'works only without a container',
  ],
  ['launcher = "slurm"', 'launcher = "kubernetes"', 'kubernetes needs server'],
  ['gpus = 16', 'gpus = 2', 'gpus is the number on all nodes'],
  ['max = 2', 'max = 2\nwarm = [{ from = "08:00", to = "18:00", jobs = 3 }]', '3 warm jobs are above max 2'],
])('says what cannot be had: %s → %s', (from, to, message) => {
  expect(faults(from, to).join('\n')).toContain(message);
});

it('reads durations and time limits', () => {
  expect(['1h30m', '0', '90', '25d'].map((text) => durationSchema.safeParse(text).data)).toEqual([
    5_400_000,
    0,
    undefined,
    undefined,
  ]);
  // sbatch(1), --time: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes.
  expect(['10', '10:30', '1:00:00', '1-12', '1-12:30', 'x'].map(timeLimitMs)).toEqual([
    600_000,
    630_000,
    3_600_000,
    129_600_000,
    131_400_000,
    undefined,
  ]);
});

it.each([
  ['recipe = "llama"\nmax = 4', 'recipe = "python"\nmax = 4', /belongs to \[models."function:"\]/],
  ['allow_functions = ["p1"]', 'allow_functions = ["p1"]\nengine = "vllm"', /its jobs run no engine/],
  ['allow_functions = ["p1"]', 'allow_functions = []', /allow_functions/],
  ['allow_functions = ["p1"]', 'engine = "vllm"', /recipe python has no weights|belongs to/],
])('refuses functions with %s replaced by %s', (from, to, said) => {
  const text = `${CONFIG}
[recipes.python]
[[recipes.python.engines]]
gpu = ["H100"]
gpus = 1
allow_functions = ["p1"]

[models."function:"]
recipe = "python"
`;
  expect('faults' in parseConfig(text)).toBe(false);
  const read = parseConfig(text.replace(from, to));
  expect('faults' in read ? read.faults.map((fault) => fault.text).join() : '').toMatch(said);
});

it('refuses an environment definition file that the agent would pull, or outside of Slurm', () => {
  const edf = (image: string) =>
    CONFIG.replace('engine = "vllm"', `engine = "vllm"\ncontainer = "edf"\nimage = "${image}"`);
  const faults = (text: string) => {
    const read = parseConfig(text);
    return 'faults' in read ? read.faults.map((fault) => fault.text).join() : '';
  };
  expect(faults(edf('vllm'))).toBe('');
  expect(faults(edf('hub:org/image'))).toMatch(/edf needs a file/);
  expect(faults(edf('vllm').replace('launcher = "slurm"', 'launcher = "pbs"'))).toMatch(/may run on alps \(pbs\)/);
});
