/** What a function can do to the agent that hosts it, with a real Python. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { type FunctionLimits, FunctionProcess } from '../../../agent/batch/functions/function-process.ts';
import { promise } from '../../support/patience.ts';
import { eventually, temporaryDirectory } from '../../support/processes.ts';

const LIMITS: FunctionLimits = { python: 'python3', loadMs: 20_000, callMs: 20_000, memoryBytes: 2 ** 31 };
const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

async function started(code: string, more: Partial<FunctionLimits> = {}, name?: string) {
  const temporary = await temporaryDirectory('function');
  const env = { PATH: process.env.PATH, OTELA_TOKEN: 'secret', AWS_SECRET_ACCESS_KEY: 'secret', HF_TOKEN: 'secret' };
  const made = new FunctionProcess({ limits: { ...LIMITS, ...more }, env, temporary, code, name, log: () => {} });
  ends.push(() => made.stop());
  return { made, temporary, loaded: await made.load() };
}
const infer = (body: string) => `import json, os, subprocess, sys, time\ndef infer(state, lines):\n    ${body}\n`;

describe('a function’s process', () => {
  it('sees nothing of the agent’s environment but what Python needs, and works in a directory of its own', async () => {
    const { made, temporary } = await started(infer('return [[sorted(os.environ), os.getcwd(), os.getpgid(0)]]'));
    const answer = await made.call(['1']);
    if (answer.kind !== 'outputs') throw new Error(JSON.stringify(answer));
    const [names, cwd, group] = JSON.parse(answer.outputs[0] ?? '') as [string[], string, number];
    expect(names.filter((one) => /OTELA|AWS|TOKEN|SECRET/.test(one))).toEqual([]);
    expect(cwd.startsWith(temporary)).toBe(true);
    expect(statSync(cwd).mode & 0o777).toBe(0o700);
    expect(group).not.toBe(process.pid);
    await made.stop();
    expect(readdirSync(temporary)).toEqual([]);
  });

  it('gets integers above 2^53 as they stand in the line, and its own come back so', async () => {
    const { made } = await started(infer('return [[line["n"] - 1, "[]"] for line in lines]'));
    const answer = await made.call(['{"n": 9223372036854775807}', '{"n":18446744073709551617}']);
    expect(answer).toEqual({
      kind: 'outputs',
      outputs: ['[9223372036854775806, "[]"]', '[18446744073709551616, "[]"]'],
      failed: new Map(),
    });
  });

  it.each([
    ['returns too few results', 'return lines[1:]', 'got 2 lines and returned 1'],
    ['returns too many results', 'return lines + lines', 'got 2 lines and returned 4'],
    ['returns what is no JSON', 'return [object() for _ in lines]', 'not JSON serializable'],
    ['returns a NaN, which JSON does not have', 'return [float("nan") for _ in lines]', 'not JSON compliant'],
    ['returns nothing', 'pass', 'NoneType'],
    ['raises', 'raise KeyError("claim")', "KeyError: 'claim'"],
  ])('that %s is told so, and lives on', async (_, body, said) => {
    const { made } = await started(infer(body));
    const answer = await made.call(['1', '2']);
    expect(answer).toMatchObject({ kind: 'raised' });
    expect('error' in answer ? answer.error : '').toContain(said);
    expect(made.broken).toBeUndefined();
  });

  it.each([
    ['ends itself', 'os._exit(9)', 'code 9'],
    ['writes garbage where answers go', 'os.write(4, b"hello\\n"); time.sleep(60)', 'not a frame'],
    [
      'forges an answer of another length',
      'os.write(4, b\'{"id": 1, "outputs": []}\\n\'); time.sleep(60)',
      '0 of 1 lines',
    ],
    ['answers another call', 'os.write(4, b\'{"id": 7, "outputs": [1]}\\n\'); time.sleep(60)', 'a different call'],
    [
      'fails lines that the call does not have',
      'os.write(4, b\'{"id": 1, "outputs": [1], "failed": {"x": 1}}\\n\'); time.sleep(60)',
      'not a frame',
    ],
    [
      'answers what is nested too deeply',
      'os.write(4, b\'{"id": 1, "outputs": [\' + b"[" * 9000 + b"]" * 9000 + b"]}\\n"); time.sleep(60)',
      'not a frame',
    ],
    ['never ends its answer', 'os.write(4, b"x" * 9_000_000); time.sleep(60)', 'more than 8388608 bytes'],
    ['never answers', 'time.sleep(60)', 'took more than'],
    ['takes all memory', 'x = bytearray(300 << 20); time.sleep(60)', 'MiB of memory'],
  ])('that %s is ended, and the reason is known', async (_, body, said) => {
    const slow = body.startsWith('time.sleep');
    const { made } = await started(infer(body), {
      memoryBytes: 200 << 20,
      ...(slow ? { callMs: promise(1_000) } : {}),
    });
    const answer = await made.call(['1']);
    expect(answer).toMatchObject({ kind: 'broken' });
    expect('why' in answer ? answer.why : '').toContain(said);
    expect(await made.call(['2'])).toMatchObject({ kind: 'broken' });
  });

  it('takes what it forked with it', async () => {
    const { made } = await started(infer('return [subprocess.Popen(["sleep", "4321"]).pid for _ in lines]'));
    const answer = await made.call(['1', '2', '3']);
    const pids = answer.kind === 'outputs' ? answer.outputs.map(Number) : [];
    expect(pids).toHaveLength(3);
    await made.stop();
    for (const pid of pids)
      await eventually(`process ${pid} has ended`, 5_000, async () => (isSleeping(pid) ? undefined : true));
  });

  it('may print without end: the last of it is kept', async () => {
    const body = 'print("x" * (50 << 20)); sys.stderr.write("the end\\n"); sys.stderr.flush(); os._exit(1)';
    const { made } = await started(infer(body));
    const answer = await made.call(['1']);
    expect('why' in answer ? answer.why.length : 0).toBeLessThan(1_100);
    expect('why' in answer ? answer.why : '').toContain('the end');
  });

  it('that cannot be loaded says why: load() raises, no such function, no Python, an endless load()', async () => {
    const raises = await started('def load():\n    raise OSError("no weights")\ndef infer(s, l):\n    return l\n');
    expect(raises.loaded).toContain('OSError: no weights');
    expect((await started('x = 1\n')).loaded).toContain('no infer');
    expect((await started('def infer(s, l):\n    return l\n', {}, 'other')).loaded).toContain('no function other');
    expect((await started('def infer(:\n')).loaded).toContain('SyntaxError');
    expect((await started('', { python: '/no/such/python' })).loaded).toContain('could not be started');
    expect((await started('import time; time.sleep(60)', { loadMs: 500 })).loaded).toContain('took more than 0.5 s');
  });

  it('finds functions that are marked by the client’s decorator, without the client', async () => {
    const code = `
import opentela
def weights():
    return 40
@opentela.function(load=weights)
def add(state, line):
    return state + line
@opentela.function(batch_size=8)
def lengths(lines):
    return [len(lines) for _ in lines]
client = opentela.Client()
`;
    const { made: adds } = await started(code, {}, 'add');
    expect(await adds.call(['2', '3'])).toMatchObject({ kind: 'outputs', outputs: ['42', '43'] });
    const { made: counts } = await started(code, {}, 'lengths');
    expect(await counts.call(['2', '3'])).toMatchObject({ kind: 'outputs', outputs: ['2', '2'] });
    expect((await started(code)).loaded).toContain('not exactly one @opentela.function');
  });

  it('takes the other parts of the package from where it is installed', async () => {
    const installed = await temporaryDirectory('installed');
    mkdirSync(join(installed, 'opentela'));
    writeFileSync(join(installed, 'opentela/__init__.py'), 'raise SystemExit("the stand-in comes first")');
    writeFileSync(join(installed, 'opentela/extra.py'), 'answer = 42');
    const python = join(installed, 'python');
    writeFileSync(python, `#!/bin/sh\nPYTHONPATH='${installed}' exec python3 "$@"\n`, { mode: 0o755 });
    const code =
      'import opentela\nfrom opentela.extra import answer\n@opentela.function()\ndef f(line):\n    return answer\n';
    const { made } = await started(code, { python });
    expect(await made.call(['1'])).toMatchObject({ kind: 'outputs', outputs: ['42'] });
    const { loaded } = await started(code);
    expect(loaded).toContain("No module named 'opentela.extra'");
  });
});

function isSleeping(pid: number): boolean {
  try {
    return execFileSync('ps', ['-o', 'stat=', '-p', String(pid)], { encoding: 'utf8' })
      .trim()
      .startsWith('S');
  } catch {
    return false;
  }
}
