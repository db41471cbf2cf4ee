import { expect, it } from 'vitest';
import { gpusBySize, siteModel, siteOf, siteProfileSchema, sitesSchema } from '../../../shared/slurm/site-profile.ts';

it.each([
  ['Qwen/Qwen3-8B', 80, 1],
  ['Qwen/Qwen3-Coder-30B-A3B-Instruct', 80, 1],
  ['Qwen/Qwen3-Coder-30B-A3B-Instruct', 40, 2],
  ['meta-llama/Llama-3.3-70B-Instruct', 80, 4],
  ['RedHatAI/Llama-3.3-70B-Instruct-FP8', 80, 2],
  ['org/Llama-3.3-70B-AWQ', 80, 1],
  ['Qwen/Qwen2.5-0.5B', 24, 1],
  ['openai/gpt-oss', 80, undefined],
  ['org/model-v2B4', 80, undefined],
])('%s on GPUs of %i GiB needs %s', (model, memory, gpus) => expect(gpusBySize(model, memory)).toBe(gpus));

it('finds the site of a token by provider and cluster, and settings of a model by its pattern', () => {
  const sites = { lab: { partition: 'a' }, 'lab/alps': { partition: 'b' } };
  expect(siteOf(sites, 'lab', 'alps')?.partition).toBe('b');
  expect(siteOf(sites, 'lab', 'other')?.partition).toBe('a');
  expect(siteOf(sites, 'constructor', undefined)).toBeUndefined();
  const site = { models: { 'Qwen/*-8B': { gpus: 1 }, 'Qwen/*': { gpus: 2 }, '*a*b': { gpus: 3 } } };
  expect(['Qwen/Qwen3-8B', 'Qwen/Qwen3-8B-FP8', 'xayb', 'ab', 'ba'].map((name) => siteModel(site, name)?.gpus)).toEqual(
    [1, 2, 3, 3, undefined],
  );
});

it.each([
  { partition: 'a\n#SBATCH --wrap=id' },
  { partition: 'a b' },
  { account: '$(id)' },
  { constraint: 'a;id' },
  { modules: ['cuda; id'] },
  { modules: ['$(id)'] },
  { modules: ['-s', 'x`id`'] },
  { modules: ['-f'] },
  { scratch: '/scratch/$(id)' },
  { scratch: '/scratch/"; id; "' },
  { scratch: `/scratch/$${'{IFS}'}` },
  { scratch: 'relative' },
  { image: '/x.sif; id' },
  { image: '$HOME/x.sif' },
  { proxy: "http://proxy'; id #" },
  { proxy: 'http://user:secret@proxy:3128' },
  { sbatch_options: ['wrap=id id'] },
  { time: '1 2' },
  { cpus: 0 },
  { models: { m: { arguments: ['a\nb'] } } },
  { prolog: 'id' },
])('refuses %j, which could run a command or mean something else', (profile) => {
  expect(siteProfileSchema.safeParse(profile).success).toBe(false);
  expect(sitesSchema.safeParse({ lab: profile }).success).toBe(false);
});
