import { chmodSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { main } from '../../../factory/cli/main.ts';
import { recipeCommand } from '../../../factory/cli/recipe-command.ts';
import { parseConfig } from '../../../factory/config/read-config.ts';
import { CONFIG } from '../../support/factory/config-text.ts';
import { ROOT } from '../../support/where.ts';

const directories: string[] = [];
afterEach(() => {
  for (const one of directories.splice(0)) rmSync(one, { recursive: true });
});

async function run(...argv: string[]): Promise<{ code: number; out: string; log: string }> {
  const [out, log]: [string[], string[]] = [[], []];
  const code = await main(argv, { out: (text) => void out.push(text), log: (text) => void log.push(text) });
  return { code, out: out.join('\n'), log: log.join('\n') };
}

function place(config = CONFIG): string {
  const directory = mkdtempSync(join(tmpdir(), 'otela-factory-'));
  directories.push(directory);
  writeFileSync(join(directory, 'factory.toml'), config);
  writeFileSync(join(directory, 'token'), `otf_${'a'.repeat(43)}\n`, { mode: 0o600 });
  return join(directory, 'factory.toml');
}

it.each(readdirSync(join(ROOT, 'examples/factory')))('check is content with examples/factory/%s', async (name) => {
  const { code, out } = await run('check', '--offline', '--config', join(ROOT, 'examples/factory', name));
  expect([code, out]).toEqual([0, expect.stringContaining('good')]);
});

it('check names the file, the line and the nearest word, and does nothing else', async () => {
  const path = place(CONFIG.replace('max_pending = 2', 'max_pendin = 2'));
  const { code, log } = await run('check', '--config', path);
  expect(code).toBe(2);
  expect(log).toMatch(/factory\.toml:\d+: clusters\.alps: unknown key max_pendin; did you mean max_pending\?/);
});

it('check finds a token that others may read, and a cluster whose commands are not here', async () => {
  const path = place();
  chmodSync(join(path, '../token'), 0o644);
  const before = process.env.PATH;
  process.env.PATH = '/nonexistent';
  try {
    const { code, out } = await run('check', '--config', path);
    expect(code).toBe(1);
    expect(out).toMatch(/bad .*other users can read it: chmod 600/);
    expect(out).toMatch(/bad .*alps\/normal with 1 GPUs: sbatch/);
  } finally {
    process.env.PATH = before;
  }
});

it('a dry run without a factory says that it knows no demand, and submits nothing', async () => {
  const before = process.env.PATH;
  process.env.PATH = '/nonexistent';
  try {
    const { code, out } = await run(
      'run',
      '--dry-run',
      '--config',
      place(CONFIG.replace('max = 2', 'max = 2\nmin = 1')),
    );
    expect(code).toBe(0);
    expect(out).toContain('no factory runs with this state directory');
    expect(out).toContain('alps does not answer');
    expect(out).toContain('Qwen/Qwen3-8B: wants 1: min is 1');
    expect(out).not.toContain('would submit');
  } finally {
    process.env.PATH = before;
  }
});

it('status and explain say where no factory has run', async () => {
  const path = place();
  expect(await run('status', '--config', path)).toMatchObject({
    code: 2,
    log: expect.stringContaining('no factory has used'),
  });
  expect(await run('stauts')).toMatchObject({ code: 2, log: expect.stringContaining('status') });
});

it('a recipe of the planner is one that check takes', async () => {
  const { code, out, log } = await run(
    'recipe',
    'meta-llama/Llama-3.3-70B-Instruct',
    '--gpu',
    'GH200',
    '--engine',
    'sglang',
  );
  expect([code, log]).toEqual([0, '']);
  // 141 GB of weights do not fit on one GPU of 96 GB.
  expect(out).toMatch(/^gpus = 2$/m);
  expect(out).toContain('arguments = ["--context-length", "32768"]');
  const pool = '[clusters.a]\nlauncher = "slurm"\n[[clusters.a.pools]]\nname = "n"\ngpu = "GH200"\ngpus_per_node = 4\n';
  const text = `factory = "f"\ngateway = "https://g"\ntoken_file = "t"\nstate = "s"\n${pool}${out}\n`;
  expect(parseConfig(text)).toHaveProperty('config');
});

it("a model that fits no node is refused with the planner's reason", async () => {
  const { code, log } = await run('recipe', 'meta-llama/Llama-3.1-405B', '--gpu', 'H100');
  expect([code, log]).toEqual([2, expect.stringContaining('does not fit 8')]);
});

it('a recipe for too long a context names the one that fits', async () => {
  const answers = (args: readonly string[]) =>
    args.includes('catalogue')
      ? JSON.stringify({ gpus: [{ id: 'T4', gpusPerNode: 1 }], models: [{ id: 'm', context: 100_000 }] })
      : JSON.stringify({ simulatedTokens: 335, kvPeak: 0.01 });
  const asked = { model: 'm', gpu: 'T4', engine: 'vllm', context: undefined };
  const io = { out: () => {}, log: () => {} };
  await expect(
    recipeCommand(asked, io, async (_, args) => ({ kind: 'done', code: 0, out: answers(args), errors: '' })),
  ).rejects.toThrow('give --context 16384');
});
