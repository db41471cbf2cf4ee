/**
 * Three scripts as they exist elsewhere, and the same ones moved to nodes. Packages that this Python lacks are replaced
 * by stand-ins with the same API, test/fixtures/python-packages: always vLLM, which needs a GPU.
 */
import { execFile, execFileSync } from 'node:child_process';
import { cpSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { Gateway } from '../../support/gateway.ts';
import { patience } from '../../support/patience.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { PYTHON } from '../../support/python-with-cloudpickle.ts';
import { ROOT } from '../../support/where.ts';

const EXAMPLES = join(ROOT, 'examples/functions');
const STAND_INS = join(ROOT, 'test/fixtures/python-packages');
const LINES_MAX = 9;

/** A Python with the packages of this one, and stand-ins for missing ones. */
function pythonAt(directory: string): string {
  execFileSync(PYTHON, ['-m', 'venv', '--without-pip', '--system-site-packages', directory]);
  const ask = 'import sysconfig; print(sysconfig.get_paths()["purelib"])';
  const own = execFileSync(PYTHON, ['-c', ask], { encoding: 'utf8' }).trim();
  const [packages = ''] = globSync(join(directory, 'lib/python3*/site-packages'));
  writeFileSync(join(packages, 'own.pth'), own);
  const python = join(directory, 'bin/python');
  const names = ['sentence_transformers.py', 'torch.py', 'torchvision', 'vllm.py'];
  const missing =
    'import importlib.util, sys; print(*[n for n in sys.argv[1:] if not importlib.util.find_spec(n.removesuffix(".py"))])';
  const absent = execFileSync(python, ['-c', missing, ...names], { encoding: 'utf8' }).trim();
  for (const name of absent.split(' ').filter((one) => one !== ''))
    cpSync(join(STAND_INS, name), join(packages, name), { recursive: true });
  console.log(`stand-ins: ${absent === '' ? 'none' : absent}`);
  return python;
}

let at: { directory: string; python: string; env: NodeJS.ProcessEnv };

beforeAll(async () => {
  const directory = await temporaryDirectory('examples');
  const python = pythonAt(join(directory, 'venv'));
  const gateway = await Gateway.start();
  const project = await gateway.createProject('examples');
  const key = await gateway.createKey('examples', { project_id: project });
  const token = await gateway.createJoinToken();
  const args = ['--allow-functions', project, '--functions-python', python, '--functions-sandbox', 'off'];
  const { PATH = '', TORCH_HOME } = process.env;
  const caches = TORCH_HOME === undefined ? {} : { TORCH_HOME };
  await startAgent({ gateways: [gateway.url], token, args, env: caches });
  const paths = { PYTHONPATH: join(ROOT, 'clients/python'), PYTHONDONTWRITEBYTECODE: '1' };
  at = { directory, python, env: { PATH, ...caches, ...paths, OTELA_GATEWAY: gateway.url, OTELA_API_KEY: key } };
}, patience(60_000));

afterAll(endAll);

async function run(script: string, ...args: string[]): Promise<string> {
  const { directory: cwd, env, python } = at;
  const { stdout } = await promisify(execFile)(python, [script, ...args], { cwd, env, timeout: patience(180_000) });
  return stdout;
}

/** Lines of a moved script that are new or changed. Blank lines and indentation do not count. */
function changedLines(name: string): number {
  const linesOf = (path: string) =>
    readFileSync(path, 'utf8')
      .split('\n')
      .map((line) => line.trim());
  const before = linesOf(join(EXAMPLES, 'before', name));
  const left = new Map<string, number>();
  for (const line of before) left.set(line, (left.get(line) ?? 0) + 1);
  const isNew = (line: string) => {
    const count = left.get(line) ?? 0;
    left.set(line, count - 1);
    return line !== '' && count <= 0;
  };
  return linesOf(join(EXAMPLES, name)).filter(isNew).length;
}

const bothOf = async (name: string, ...args: string[]) => [
  await run(join(EXAMPLES, 'before', name), ...args),
  await run(join(EXAMPLES, name), ...args),
];

it.each([
  ['embed_corpus.py', 8],
  ['generate_texts.py', 8],
  ['classify_images.py', 8],
])('%s was moved in %i lines, as the page says', (name, lines) => {
  expect(changedLines(name)).toBe(lines);
  expect(lines).toBeLessThanOrEqual(LINES_MAX);
  const rows = readFileSync(join(ROOT, 'examples/README.md'), 'utf8').split('\n');
  const cells = rows
    .find((row) => row.includes(`\`${name}\``))
    ?.split('|')
    .map((cell) => cell.trim());
  expect(cells?.at(-2)).toBe(String(lines));
});

it('the vectors of a corpus are the same', async () => {
  const corpus = join(at.directory, 'corpus.txt');
  writeFileSync(corpus, Array.from({ length: 250 }, (_, i) => `document ${i % 200}`).join('\n'));
  const model = process.env.OTELA_TEST_EMBEDDINGS ?? 'any';
  const before = await run(join(EXAMPLES, 'before/embed_corpus.py'), corpus, 'before.jsonl', model);
  expect(await run(join(EXAMPLES, 'embed_corpus.py'), corpus, 'after.jsonl', model)).toBe(before);
  const vectorsOf = (name: string) =>
    readFileSync(join(at.directory, name), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as number[]);
  const [expected, found] = [vectorsOf('before.jsonl'), vectorsOf('after.jsonl')];
  expect(found).toHaveLength(250);
  for (const [i, vector] of found.entries())
    for (const [j, value] of vector.entries()) expect(value).toBeCloseTo(expected[i]?.[j] ?? Number.NaN, 4);
});

it('the texts of an offline engine are the same', async () => {
  const prompts = join(at.directory, 'prompts.txt');
  writeFileSync(prompts, Array.from({ length: 120 }, (_, i) => `Prompt ${i}`).join('\n'));
  const [before, after] = await bothOf('generate_texts.py', prompts);
  expect(before?.trim().split('\n')).toHaveLength(120);
  expect(after).toBe(before);
});

it('the classes of images are the same, and the images travel', async () => {
  const folder = join(ROOT, 'docs/screenshots');
  const [before, after] = await bothOf('classify_images.py', folder);
  expect(before?.trim().split('\n')).toHaveLength(globSync(join(folder, '*.png')).length);
  expect(after).toBe(before);
});
