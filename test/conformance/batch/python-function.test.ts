/** The Python client: the ten lines of its example, run by a real agent. */
import { execFile } from 'node:child_process';
import { existsSync, globSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, expect, it } from 'vitest';
import * as z from 'zod';
import { startAgent } from '../../support/agent.ts';
import { Gateway } from '../../support/gateway.ts';
import { patience } from '../../support/patience.ts';
import { endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { NO_CLOUDPICKLE, PYTHON } from '../../support/python-with-cloudpickle.ts';
import { ROOT } from '../../support/where.ts';

afterEach(endAll);

const resultsSchema = z.object({
  data: z.array(z.object({ custom_id: z.string(), response: z.unknown() })),
  has_more: z.boolean(),
  after: z.string(),
  batch: z.object({ id: z.string(), status: z.string() }),
});

interface Place {
  gateway: Gateway;
  env: NodeJS.ProcessEnv;
  directory: string;
  /** Starts one more node. */
  addNode(): Promise<unknown>;
}

/** A gateway with a node that runs functions. */
async function place(...args: string[]): Promise<Place> {
  const gateway = await Gateway.start();
  const project = await gateway.createProject('claims');
  const key = await gateway.createKey('claims', { project_id: project });
  const token = await gateway.createJoinToken();
  const addNode = () => startAgent({ gateways: [gateway.url], token, args: ['--allow-functions', project, ...args] });
  await addNode();
  const env = {
    PATH: process.env.PATH ?? '',
    PYTHONPATH: join(ROOT, 'clients/python'),
    PYTHONDONTWRITEBYTECODE: '1',
    OTELA_GATEWAY: gateway.url,
    OTELA_API_KEY: key,
  };
  return { gateway, env, directory: await temporaryDirectory('script'), addNode };
}

/** Runs a script, which is saved in the place's directory, to its end. */
async function script({ env, directory }: Place, text: string, name = 'script.py'): Promise<string> {
  const path = join(directory, name);
  writeFileSync(path, text);
  const { stdout } = await promisify(execFile)(PYTHON, [path, directory], { env, timeout: patience(120_000) });
  return stdout.trim();
}

it('the client’s example runs on the nodes, and its module is not needed there', async () => {
  const { env } = await place();
  const { stdout } = await promisify(execFile)(PYTHON, [join(ROOT, 'clients/python/example.py')], {
    env,
    timeout: patience(120_000),
  });
  expect(stdout.trim()).toBe("['SUPPORTED', 'REFUTED']");
});

/** Functions that write into a test's directory. */
const OPEN = ['--functions-sandbox', 'off'];

/** Calls write one file each, so that a test sees how often an input ran. Input 5 waits for a file `gate`. */
const COUNTED = `
import os, sys, time, uuid, opentela
@opentela.function
def f(folder, x):
    open(os.path.join(folder, f"ran-{x}-{uuid.uuid4().hex}"), "w").close()
    while x == 5 and not os.path.exists(os.path.join(folder, "gate")):
        time.sleep(0.05)
    if x == 7 and not os.path.exists(os.path.join(folder, "repaired")):
        raise ValueError("seven")
    return {x}
`;

it('results come while the run continues; a killed script’s run continues, and the same script computes only what is missing', async () => {
  const at = await place(...OPEN);
  const main = `${COUNTED}
if __name__ == "__main__":
    folder = sys.argv[1]
    client = opentela.Client()
    run = client.map(f, [folder] * 8, range(8), return_exceptions=True)
    print(next(run), flush=True)
    if not os.path.exists(os.path.join(folder, "gate")):
        open(os.path.join(folder, "run"), "w").write(run.id)
        os.kill(os.getpid(), 9)
    print([type(one).__name__ for one in run], run.counts)
`;
  await expect(script(at, main)).rejects.toMatchObject({ signal: 'SIGKILL', stdout: '{0}\n' });
  writeFileSync(join(at.directory, 'gate'), '');
  expect(await script(at, main)).toBe(
    "{0}\n['set', 'set', 'set', 'set', 'set', 'set', 'FunctionError'] {'total': 8, 'completed': 7, 'failed': 1}",
  );
  writeFileSync(join(at.directory, 'repaired'), '');
  expect(await script(at, main)).toContain("'completed': 8, 'failed': 0");
  const ran = readdirSync(at.directory).flatMap((name) => /^ran-(\d)-/.exec(name)?.[1] ?? []);
  // Only the input that failed ran twice, or three times if the second script still found the first batch open.
  expect(ran.filter((one) => one !== '7').sort()).toEqual(['0', '1', '2', '3', '4', '5', '6']);

  const run = readFileSync(join(at.directory, 'run'), 'utf8');
  const attached = `import sys; sys.path.insert(0, ${JSON.stringify(at.directory)})
import opentela
with opentela.Client() as client:
    run = client.attach(${JSON.stringify(run)})
    print([future.exception() and future.exception().code for future in run.futures])
    print(run.retry(), [one for one in run], run.counts["failed"])
    try:
        client.attach("run-none")
    except opentela.OtelaError as error:
        print(error)
`;
  const lines = (await script(at, attached, 'attached.py')).split('\n');
  expect(lines[0]).toBe("[None, None, None, None, None, None, None, 'function_failed']");
  expect(lines[1]).toBe('1 [{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}] 0');
  expect(lines[2]).toContain('there is no run');
});

it('functions of all kinds run on a node as they run here: with keywords, in lists, async, from a closure', async ({
  skip,
}) => {
  skip(NO_CLOUDPICKLE !== undefined, NO_CLOUDPICKLE);
  const at = await place();
  const main = `
import dataclasses, opentela
@dataclasses.dataclass
class Claim:
    text: str
def load(n=1):
    return n
@opentela.function(load=load, context={"n": 3})
def times(n, x, *, plus=0):
    return n * x + plus
@opentela.function(batch_size=2)
def lists(claims):
    return [Claim(claim.text * len(claims)) for claim in claims]
@opentela.function
async def waits(x):
    return (x, x)
if __name__ == "__main__":
    with opentela.Client() as client:
        base = 40
        futures = [client.submit(times, 2, plus=1), client.submit(lambda x: x + base, 2), client.submit(pow, 2, 5)]
        print([one.result() for one in futures])
        print(list(client.map(lists, [Claim("a"), Claim("b"), Claim("c")])))
        print(list(client.map(waits, [1, 2])))
`;
  const expected = "[7, 42, 32]\n[Claim(text='aa'), Claim(text='bb'), Claim(text='c')]\n[(1, 1), (2, 2)]";
  expect(await script(at, main)).toBe(expected);
  expect(await script({ ...at, env: { ...at.env, OTELA_GATEWAY: 'local' } }, main)).toBe(expected);
});

/** Each call waits until two nodes have begun one. */
const MEET = `
import os, sys, time, opentela
@opentela.function
def meet(folder, x):
    open(os.path.join(folder, f"node-{os.getpid()}"), "w").close()
    while sum(name.startswith("node-") for name in os.listdir(folder)) < 2:
        time.sleep(0.05)
    return x
if __name__ == "__main__":
    with opentela.Client() as client:
        print(list(client.map(meet, [sys.argv[1]] * 6, range(6))))
`;

it('a node that joins later gets lines that wait at a busy node', async () => {
  const at = await place(...OPEN);
  const run = script(at, MEET);
  await eventually('the first node runs a call', 30_000, () =>
    readdirSync(at.directory).some((name) => name.startsWith('node-')) ? true : undefined,
  );
  await at.addNode();
  expect(await run).toBe('[0, 1, 2, 3, 4, 5]');
});

it('a function runs with the Python and the packages of an environment that its owner packed', async ({ skip }) => {
  skip(!existsSync('/usr/bin/python3'), 'needs a Python that the sandbox shows: /usr/bin/python3');
  const at = await place();
  const environment = join(at.directory, 'environment');
  await promisify(execFile)('/usr/bin/python3', ['-m', 'venv', '--copies', '--without-pip', environment]);
  const [packages = ''] = globSync(join(environment, 'lib/python3*/site-packages'));
  writeFileSync(join(packages, 'only_there.py'), 'value = 42\n');
  const archive = join(at.directory, 'environment.tar.gz');
  await promisify(execFile)('tar', ['-C', environment, '-czf', archive, '.']);
  const main = `
import os, sys, opentela
@opentela.function(environment=os.path.join(os.path.dirname(__file__), "environment.tar.gz"))
def found(x):
    import only_there
    return x + only_there.value, os.path.relpath(sys.executable, sys.prefix), os.path.commonpath([sys.prefix, only_there.__file__]) == sys.prefix
if __name__ == "__main__":
    with opentela.Client() as client:
        print(*client.map(found, [0, 1]))
`;
  expect(await script(at, main)).toBe("(42, 'bin/python', True) (43, 'bin/python', True)");
});

it('a node without the declared GPUs declines: the batch waits for another node, and the client says why', async () => {
  const at = await place();
  const main = `
import logging, time, opentela
from opentela import _sent
_sent.SILENT_S = _sent.WARN_S = 1
@opentela.function(gpus=64)
def f(x):
    return x
if __name__ == "__main__":
    heard = []
    logging.getLogger("opentela").addHandler(type("Heard", (logging.Handler,), {"emit": lambda _, record: heard.append(record.getMessage())})())
    client = opentela.Client()
    run = client.map(f, [1])
    while not any("declined" in one for one in heard):
        time.sleep(0.1)
    print(run.counts, heard[-1])
    client.shutdown(wait=False, cancel_futures=True)
`;
  expect(await script(at, main)).toMatch(
    /^\{'total': 1, 'completed': 0, 'failed': 0\} batch_\S+ waits: A node declined: the function declares 64 GPUs for each process, and this node has \d+: declare fewer, or require=/,
  );
});

it('results of a running batch are for its owner, from a position on', async () => {
  const at = await place(...OPEN);
  const main = `${COUNTED}
if __name__ == "__main__":
    client = opentela.Client()
    run = client.map(f, [sys.argv[1]] * 6, range(6))
    next(run)
    batch = next(client.gateway.batches(1))["id"]
    print(batch, client._sender.sent[0].after)
`;
  const [batch = '', after = ''] = (await script(at, main)).split(' ');
  const read = (key: string, query: string) =>
    fetch(`${at.gateway.url}/v1/batches/${batch}/results${query}`, { headers: { authorization: `Bearer ${key}` } });
  const owner = at.env.OTELA_API_KEY ?? '';
  const page = async (query: string) => resultsSchema.parse(await (await read(owner, query)).json());
  const first = await page('');
  expect(first.data.length).toBeGreaterThan(0);
  expect(first.data.length).toBeLessThan(6);
  expect(first).toMatchObject({ has_more: false, batch: { id: batch, status: 'in_progress' } });
  expect((await page(`?after=${first.after}`)).data).toEqual([]);
  expect(Number(after)).toBeGreaterThan(0);
  const stranger = await at.gateway.createKey('stranger', { project_id: await at.gateway.createProject('other') });
  expect((await read(stranger, '')).status).toBe(404);
  expect((await read(owner, '?after=-1')).status).toBe(400);
  expect((await read(owner, '?after=1e9')).status).toBe(400);
  writeFileSync(join(at.directory, 'gate'), '');
  await eventually('the batch has ended', 30_000, async () => {
    const ended = await page('');
    return ended.batch.status === 'completed' ? ended : undefined;
  });
  expect((await page('')).data).toEqual([]);
});

it('a secret reaches the function that declares it, and no response, other function or other project', async ({
  skip,
}) => {
  skip(NO_CLOUDPICKLE !== undefined, NO_CLOUDPICKLE);
  const at = await place(...OPEN);
  const ask = (method: string, path: string, key: string | undefined, body?: object) =>
    fetch(`${at.gateway.url}/v1/otela/secrets${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
  const key = at.env.OTELA_API_KEY;
  const text = `
import os, opentela
@opentela.function(secrets=["HF_TOKEN"])
def mine(x):
    return os.environ.get("HF_TOKEN")
@opentela.function
def other(x):
    return os.environ.get("HF_TOKEN")
if __name__ == "__main__":
    with opentela.Client() as client:
        for f in (mine, other):
            for answer in client.map(f, [1], return_exceptions=True):
                print(answer)
`;
  await expect(script(at, text)).rejects.toThrow('HF_TOKEN, which is not stored: otela secrets set HF_TOKEN');
  for (const [name, body] of [
    ['LD_PRELOAD', { value: 'x' }],
    ['HF_TOKEN', { value: 'a\nb' }],
    ['HF_TOKEN', { value: '' }],
    ['HF_TOKEN', { value: 'x'.repeat(10_000) }],
  ] as const)
    expect((await ask('PUT', `/${name}`, key, body)).status).toBe(400);
  const stored = await ask('PUT', '/HF_TOKEN', key, { value: 'hf_secret' });
  const listed = await ask('GET', '', key);
  for (const answer of [stored, listed]) {
    const shown = await answer.text();
    expect([answer.status, shown]).toEqual([200, expect.stringContaining('"name":"HF_TOKEN"')]);
    expect(shown).not.toContain('hf_secret');
  }
  expect(await script(at, text)).toBe('hf_secret\nNone');
  const stranger = await at.gateway.createKey('stranger');
  expect(await (await ask('GET', '', stranger)).json()).toEqual({ object: 'list', data: [] });
  expect((await ask('DELETE', '/HF_TOKEN', stranger)).status).toBe(404);
  expect((await ask('DELETE', '/HF_TOKEN', key)).status).toBe(200);
});

it('a file of the script is read by its calls on the node under its own name, uploaded once, and read-only', async ({
  skip,
}) => {
  skip(NO_CLOUDPICKLE !== undefined, NO_CLOUDPICKLE);
  const at = await place();
  writeFileSync(join(at.directory, 'table.csv'), 'a,b\n1,2\n');
  const text = `
import os, sys, opentela
@opentela.function
def rows(table, n, more=None):
    try:
        open(table, "a").write("x")
        written = True
    except OSError:
        written = False
    return [os.path.basename(table), open(table).read().splitlines()[n], open(more["same"]).read(1), written]
if __name__ == "__main__":
    table = opentela.File(os.path.join(sys.argv[1], "table.csv"))
    with opentela.Client() as client:
        for answer in [client.submit(rows, table, n, more={"same": table}).result() for n in (0, 1)]:
            print(answer)
`;
  const [first, second] = (await script(at, text)).split('\n');
  expect(first).toMatch(/^\['table.csv', 'a,b', 'a', (True|False)\]$/);
  expect(second).toMatch(/^\['table.csv', '1,2', 'a', (True|False)\]$/);
  const listed = await fetch(`${at.gateway.url}/v1/files?purpose=user_data`, {
    headers: { authorization: `Bearer ${at.env.OTELA_API_KEY}` },
  });
  const { data } = z.object({ data: z.array(z.object({ filename: z.string() })) }).parse(await listed.json());
  expect(data.filter(({ filename }) => filename.startsWith('input-'))).toHaveLength(1);
});

/** Input 1 waits for a file `gate`, so that the run continues while the test reads the file of input 0. */
it('files that calls write are read while the run continues, are arguments of other calls, and are stored once', async () => {
  const at = await place(...OPEN);
  const text = `
import os, sys, time, opentela
@opentela.function
def draw(folder, n):
    while n and not os.path.exists(os.path.join(folder, "gate")):
        time.sleep(0.05)
    os.mkdir("deep")
    with open(f"deep/plot-{n}.bin", "wb") as file:
        file.write(b"same" * 1_000_000)
    return n, opentela.File(f"deep/plot-{n}.bin"), os.listdir(".")
@opentela.function
def size(plot):
    return os.path.getsize(plot), os.path.basename(plot)
@opentela.function
def link(path):
    os.symlink("/etc/hostname", "link")
    return opentela.File(path)
if __name__ == "__main__":
    folder = sys.argv[1]
    with opentela.Client() as client:
        run = client.map(draw, [folder] * 2, range(2))
        n, plot, _ = next(run)
        print(n, os.path.basename(plot.save(folder)), run.futures[1].done())
        open(os.path.join(folder, "gate"), "w").close()
        n, other, _ = next(run)
        print(n, other.name, other.id == plot.id, open(other, "rb").read() == open(plot, "rb").read())
        print(client.submit(size, plot).result())
        for path in ("link", "/etc/hostname"):
            print("that it wrote below its working directory" in str(client.submit(link, path).exception()))
`;
  expect((await script(at, text)).split('\n')).toEqual([
    '0 plot-0.bin False',
    '1 plot-1.bin True True',
    "(4000000, 'plot-0.bin')",
    'True',
    'True',
  ]);
  const listed = await fetch(`${at.gateway.url}/v1/files?purpose=batch_output`, {
    headers: { authorization: `Bearer ${at.env.OTELA_API_KEY}` },
  });
  const { data } = z.object({ data: z.array(z.object({ filename: z.string() })) }).parse(await listed.json());
  expect(data.filter(({ filename }) => filename.startsWith('plot'))).toHaveLength(1);
  expect(readFileSync(join(at.directory, 'plot-0.bin'))).toHaveLength(4_000_000);
});
