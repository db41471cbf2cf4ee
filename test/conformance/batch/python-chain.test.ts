/** Calls that need results of others: the gateway holds them, so they run after the script has ended. */
import { execFile } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import OpenAI from 'openai';
import { afterEach, expect, it } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { patience } from '../../support/patience.ts';
import { endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { PYTHON } from '../../support/python-with-cloudpickle.ts';
import { MODEL, openTestCluster } from '../../support/test-cluster.ts';
import { ROOT } from '../../support/where.ts';

afterEach(endAll);

/** A cluster that serves a model and runs functions, and a directory for a script. */
async function place() {
  const cluster = await openTestCluster();
  const { gateway, token } = cluster;
  await startAgent({
    gateways: [gateway.url],
    token,
    args: ['--allow-functions', 'all', '--functions-sandbox', 'off', '--functions-loaded', '3'],
  });
  const directory = await temporaryDirectory('chain');
  const env = {
    PATH: process.env.PATH ?? '',
    PYTHONPATH: join(ROOT, 'clients/python'),
    PYTHONDONTWRITEBYTECODE: '1',
    OTELA_GATEWAY: gateway.url,
    OTELA_API_KEY: cluster.key,
  };
  const client = new OpenAI({ baseURL: cluster.base, apiKey: cluster.key, maxRetries: 0 });
  const script = async (text: string) => {
    const path = join(directory, 'script.py');
    writeFileSync(path, text);
    const { stdout } = await promisify(execFile)(PYTHON, [path, directory], { env, timeout: patience(120_000) });
    return stdout.trim();
  };
  return { directory, client, script };
}

const CHAIN = `
import os, sys, time, uuid, opentela
@opentela.function
def prompt(folder, n):
    open(os.path.join(folder, f"ran-prompt-{n}-{uuid.uuid4().hex}"), "w").close()
    while not os.path.exists(os.path.join(folder, "gate")):
        time.sleep(0.05)
    if n == 2:
        raise ValueError("no prompt for two")
    return f"Say {n}."
@opentela.function
def measure(folder, answer, more, known=0):
    open(os.path.join(folder, f"ran-measure-{len(more)}-{uuid.uuid4().hex}"), "w").close()
    return len(answer) > 0, more, known
def main(folder, client):
    prompts = client.map(prompt, [folder] * 3, range(3)).futures
    answers = client.map(opentela.served("${MODEL}", max_tokens=2), prompts).futures
    return [client.submit(measure, folder, answers[n], [prompts[n], n], known=n, after=[prompts[0]]) for n in range(3)]
`;

it('function, served model and function run one after another although the script was killed; a failure names its cause', async () => {
  const at = await place();
  const both = `${CHAIN}
if __name__ == "__main__":
    client = opentela.Client()
    futures = main(sys.argv[1], client)
    if not os.path.exists(os.path.join(sys.argv[1], "gate")):
        client._sender.flush()
        os.kill(os.getpid(), 9)
    for future in futures:
        error = future.exception()
        print(future.result() if error is None else (error.code, str(error)))
`;
  await expect(at.script(both)).rejects.toMatchObject({ signal: 'SIGKILL' });
  writeFileSync(join(at.directory, 'gate'), '');
  const batches = await eventually('all batches have ended', 60_000, async () => {
    const { data } = await at.client.batches.list();
    return data.every(({ status }) => status === 'completed') ? data : undefined;
  });
  expect(batches.map(({ request_counts: counts }) => [counts?.completed, counts?.failed])).toEqual([
    [2, 1],
    [2, 1],
    [2, 1],
  ]);
  const [first, second, third] = (await at.script(both)).split('\n');
  expect([first, second]).toEqual(["(True, ['Say 0.', 0], 0)", "(True, ['Say 1.', 1], 1)"]);
  expect(third).toContain("('dependency_failed', ");
  expect(third).toContain('prompt');
  expect(third).toContain('no prompt for two');
  const ran = readdirSync(at.directory).filter((name) => name.startsWith('ran-'));
  const countOf = (start: string) => ran.filter((name) => name.startsWith(start)).length;
  // Existing results are found again. Only the call that failed is tried again.
  expect([countOf('ran-prompt-0'), countOf('ran-prompt-1'), countOf('ran-measure')]).toEqual([1, 1, 2]);
});

const FILES = `
import os, sys, time, opentela
@opentela.function
def draw(folder, n):
    while not os.path.exists(os.path.join(folder, "gate")):
        time.sleep(0.05)
    with open("plot.txt", "w") as file:
        file.write("x" * n)
    return "title", opentela.File("plot.txt")
@opentela.function
def read(drawn, table):
    title, plot = drawn
    return title, os.path.basename(plot), open(plot).read(), open(table).read()
if __name__ == "__main__":
    client = opentela.Client()
    drawn = client.submit(draw, sys.argv[1], 3)
    found = client.submit(read, drawn, opentela.File(__file__))
    if not os.path.exists(os.path.join(sys.argv[1], "gate")):
        client._sender.flush()
        os.kill(os.getpid(), 9)
    title, name, text, script = found.result()
    print(title, name, text, script == open(__file__).read())
`;

it('a file that a call wrote reaches the call that needs it although the script was killed', async () => {
  const at = await place();
  await expect(at.script(FILES)).rejects.toMatchObject({ signal: 'SIGKILL' });
  writeFileSync(join(at.directory, 'gate'), '');
  const batches = await eventually('both batches have ended', 60_000, async () => {
    const { data } = await at.client.batches.list();
    return data.every(({ status }) => status === 'completed') ? data : undefined;
  });
  expect(batches.map(({ request_counts: counts }) => counts?.completed)).toEqual([1, 1]);
  expect(await at.script(FILES)).toBe('title plot.txt xxx True');
});
