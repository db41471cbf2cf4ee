/** What a hostile function can reach on a node with the sandbox. Runs if this machine's kernel allows it. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { FunctionPackages } from '../../../agent/batch/functions/function-packages.ts';
import { FunctionSandbox, sandboxFault } from '../../../agent/batch/functions/function-sandbox.ts';
import { FunctionStarter } from '../../../agent/batch/functions/function-starter.ts';
import { toolRunner } from '../../../agent/host/run-tool.ts';
import { temporaryDirectory } from '../../support/processes.ts';

const run = toolRunner({ PATH: process.env.PATH });
const fault = await sandboxFault(run, await temporaryDirectory('sandbox'));
if (fault !== undefined) console.log(`not run: ${fault}`);

/** Runs `infer` with one line in a node's sandbox, and returns its output. @param weights declared repositories */
async function answered(
  code: string,
  { network = false, line = '{}', weights = [] as string[] } = {},
): Promise<unknown> {
  const [home, temporary, secrets] = await Promise.all(
    ['home', 'functions', 'secrets'].map((name) => temporaryDirectory(name)),
  );
  if (home === undefined || temporary === undefined || secrets === undefined) throw new Error('no directory');
  mkdirSync(join(home, '.cache/hub'), { recursive: true });
  mkdirSync(join(temporary, 'otela-function-1-other'));
  const token = join(secrets, 'token');
  for (const path of [join(home, 'id_rsa'), join(temporary, 'otela-function-1-other/function.py'), token])
    writeFileSync(path, 'SECRET');
  writeFileSync(join(home, '.cache/hub/weights'), 'weights');
  const cache = join(home, 'weights');
  for (const name of ['lab--mine', 'lab--theirs']) {
    mkdirSync(join(cache, `models--${name}`), { recursive: true });
    writeFileSync(join(cache, `models--${name}`, 'weights'), name);
  }
  const env = { PATH: process.env.PATH, HOME: home, HF_HUB_CACHE: join(home, '.cache/hub') };
  const sandbox = new FunctionSandbox({ hidden: [temporary, home], masked: [token], network });
  const limits = { python: 'python3', loadMs: 20_000, callMs: 20_000, memoryBytes: 2 ** 31 };
  const bounds = { installMs: 1_000, memoryBytes: 2 ** 30 };
  const log = () => {};
  const store = () => undefined;
  const packages = new FunctionPackages({
    directory: join(home, 'packages'),
    env,
    run,
    limits: bounds,
    store,
    unpack: async () => {},
    log,
  });
  const starter = new FunctionStarter({
    limits,
    env,
    temporary,
    run,
    packages,
    sandbox,
    weights: () => ({ directory: cache, pull: async () => {}, packages: () => Promise.reject(new Error('none')) }),
    log,
  });
  const options = { requirements: [], weights, batch_size: 'auto' as const };
  const made = await starter.start({ context: 'a', owner: 'project:lab', code, options }, undefined);
  onTestFinished(() => made.stop());
  expect(await made.load()).toBeUndefined();
  const paths = { home, temporary, token, agent: process.pid, ...(JSON.parse(line) as object) };
  const answer = await made.call([JSON.stringify(paths)]);
  if (answer.kind !== 'outputs') throw new Error(JSON.stringify(answer));
  return JSON.parse(answer.outputs[0] ?? '');
}

const HOSTILE = `
import os, subprocess

def tried(act):
    try:
        return act()
    except Exception as error:
        return type(error).__name__

def infer(state, lines):
    at = lines[0]
    shell = lambda text: subprocess.run(text, shell=True, capture_output=True).stdout.decode()
    read = lambda path: open(path).read()
    found = {
        "home": tried(lambda: sorted(os.listdir(at["home"]))),
        "others": tried(lambda: [name for name in os.listdir(at["temporary"]) if "other" in name]),
        "token": tried(lambda: read(at["token"])),
        "environ": tried(lambda: read(f"/proc/{at['agent']}/environ")),
        "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
        "unhidden": shell(f"umount -l {at['home']} {at['temporary']} {at['token']}; cat {at['home']}/id_rsa {at['token']}"),
        "nested": shell(f"unshare -Urm sh -c 'umount -l {at['home']}; cat {at['home']}/id_rsa'"),
        "entered": shell(f"nsenter -t {at['agent']} -m -U cat {at['home']}/id_rsa"),
        "killed": tried(lambda: os.kill(at["agent"], 0)),
        "weights": tried(lambda: read(os.path.join(at["home"], ".cache/hub/weights"))),
        "poisoned": tried(lambda: open(os.path.join(at["home"], ".cache/hub/weights"), "w")),
        "own": tried(lambda: open("mine", "w").write("x")),
    }
    return [found]
`;

it.skipIf(fault !== undefined)(
  'a hostile function reads neither secrets nor other functions, sees no process of the node, and cannot change the weights that it reads',
  async () => {
    expect(await answered(HOSTILE)).toEqual({
      home: ['.cache'],
      others: [],
      token: '',
      environ: expect.stringMatching(/^(FileNotFoundError|ProcessLookupError)$/),
      processes: 1,
      unhidden: '',
      nested: '',
      entered: '',
      killed: 'ProcessLookupError',
      weights: 'weights',
      poisoned: 'OSError',
      own: 1,
    });
  },
);

it.skipIf(fault !== undefined)(
  'a function sees the repositories that it declares, and no others on the node',
  async () => {
    const code = `
import os
def infer(state, lines):
    cache = os.environ["HF_HUB_CACHE"]
    return [[sorted(os.listdir(cache)), open(os.path.join(cache, "models--lab--mine", "weights")).read()]]
`;
    expect(await answered(code, { weights: ['lab/mine'] })).toEqual([['models--lab--mine'], 'lab--mine']);
  },
);

it.skipIf(fault !== undefined)('a function reaches the network only if the operator allows it', async () => {
  const server = createServer((_, response) => void response.end('reached'));
  onTestFinished(() => void server.close());
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as AddressInfo;
  const code = `
import urllib.request
def infer(state, lines):
    try:
        return [urllib.request.urlopen(f"http://127.0.0.1:{lines[0]['port']}").read().decode()]
    except OSError as error:
        return [type(error).__name__]
`;
  const line = JSON.stringify({ port });
  expect(await answered(code, { line })).toBe('URLError');
  expect(await answered(code, { line, network: true })).toBe('reached');
});
