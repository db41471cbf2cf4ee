/** A real venv of this machine's Python, packed by tar, with a mock engine in it, written in Python. */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, expect, it } from 'vitest';
import * as z from 'zod';
import { which } from '../support/abilities.ts';
import { engineCommand, startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { endAll, freePort, temporaryDirectory } from '../support/processes.ts';
import { NODE } from '../support/where.ts';

afterEach(endAll);

const run = promisify(execFile);
const MODEL = 'lab/python';

/** Source of the mock engine's module. It reports the paths of its Python and of itself. */
const MODULE = `
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": "${MODEL}", "object": "model", "owned_by": "lab", "max_model_len": 4096}]})

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": sys.prefix + " " + __file__}
        self.answer({"id": "x", "object": "chat.completion", "created": 0, "model": "${MODEL}",
                     "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                     "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})

    def log_message(self, *_):
        pass

def main():
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
`;

async function packedVenv(python: string): Promise<string> {
  const place = await temporaryDirectory('otela-venv');
  const venv = join(place, 'venv');
  await run(python, ['-m', 'venv', '--copies', '--without-pip', venv]);
  const { stdout } = await run(join(venv, 'bin/python3'), ['-c', 'import site; print(site.getsitepackages()[0])']);
  await mkdir(stdout.trim(), { recursive: true });
  await writeFile(join(stdout.trim(), 'stand_in.py'), MODULE);
  // Writes the script in the form in which pip writes the scripts of a package.
  const script = join(venv, 'bin/stand-in');
  await writeFile(script, `#!${venv}/bin/python3\nfrom stand_in import main\nmain()\n`);
  await chmod(script, 0o755);
  const packed = join(place, 'env.tar.gz');
  await run('tar', ['-C', venv, '-czf', packed, '.']);
  await rm(venv, { recursive: true });
  return packed;
}

const answerSchema = z.object({ choices: z.array(z.object({ message: z.object({ content: z.string() }) })) });

const python = which('python3');
it('engines of two nodes start in a venv that one of them read', async ({ skip }) => {
  if (python === undefined) return skip('not installed: python3');
  const gateway = await Gateway.start();
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const packed = await packedVenv(python);
  const start = async () => {
    const directory = await temporaryDirectory('otela-weights');
    const port = String(await freePort());
    const agent = await startAgent({
      gateways: [gateway.url],
      token,
      args: ['--environment', `dir:${packed}`, '--weights-dir', directory, '--engine-port', port],
      command: ['stand-in', '--port', port],
    });
    return { agent, directory };
  };
  const answer = async () => {
    const response = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'where?' }] }),
    });
    return answerSchema.parse(await response.json()).choices[0]?.message.content.split(' ') ?? [];
  };
  const first = await start();
  await gateway.serving(1, 120_000, MODEL);
  const [prefix, file] = await answer();
  expect(prefix).toContain(join(first.directory, '.otela/environments'));
  expect(file?.startsWith(prefix ?? 'none')).toBe(true);
  await rm(packed);
  const second = await start();
  await gateway.serving(2, 120_000, MODEL);
  expect(second.agent.output).toMatch(
    /environment: .* 0 bytes from the source, [1-9]\d* from other nodes, [1-9]\d* bytes unpacked/,
  );
});

/**
 * Runs two ranks of one engine, each as on a separate node. Resolves with the output of rank 1 and with the bytes that
 * each rank read from the source.
 */
async function ranksIn(environment: string, commands: string[][]) {
  const gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  const ranks = await Promise.all(
    commands.map(async (command, rank) => {
      const directory = await temporaryDirectory('otela-weights');
      const agent = await startAgent({
        gateways: [gateway.url],
        token,
        args: ['--span-nodes', '--environment', `dir:${environment}`, '--weights-dir', directory],
        env: { SLURM_PROCID: String(rank), SLURM_STEP_NUM_NODES: '2' },
        command,
      });
      return { agent, directory };
    }),
  );
  await gateway.serving(1, 120_000);
  const [, printed = ''] = (await ranks[1]?.agent.line(/rank 1 runs (.*)/, 60_000)) ?? [];
  const lines = ranks.map(({ agent }) => agent.line(/environment: .* (\d+) bytes from the source/, 1_000));
  const read = (await Promise.all(lines)).reduce((sum, [, bytes]) => sum + Number(bytes), 0);
  return { printed, read, directory: ranks[1]?.directory ?? '' };
}

it('each rank of an engine over two nodes has its venv before its part begins, with one read of the source', async ({
  skip,
}) => {
  if (python === undefined) return skip('not installed: python3');
  const packed = await packedVenv(python);
  const part = `import stand_in, sys, time; print('rank 1 runs', sys.prefix, flush=True); time.sleep(600)`;
  const { printed, read, directory } = await ranksIn(packed, [
    ['stand-in', '--port', String(await freePort())],
    ['python3', '-c', part],
  ]);
  expect(printed.startsWith(join(directory, '.otela/environments'))).toBe(true);
  expect(read).toBe((await stat(packed)).size);
});

it('the same of an image', async () => {
  const image = join(await temporaryDirectory('otela-image'), 'engine.sif');
  const bytes = Buffer.concat([Buffer.alloc(32), Buffer.from('SIF_MAGIC'), randomBytes(2 ** 20)]);
  await writeFile(image, bytes);
  const part = `console.log('rank 1 runs ' + process.argv[1]); setInterval(() => {}, 60_000)`;
  const { printed, read, directory } = await ranksIn(image, [
    engineCommand(await freePort()),
    [NODE, '-e', part, '{{environment}}'],
  ]);
  expect(printed.startsWith(directory)).toBe(true);
  expect((await readFile(printed)).equals(bytes)).toBe(true);
  expect(read).toBe(bytes.length);
});

it('without its environment no engine is started, and the agent says why', async () => {
  const gateway = await Gateway.start();
  const place = await temporaryDirectory('otela-venv');
  await writeFile(join(place, 'env.tar'), 'no archive');
  const agent = await startAgent({
    gateways: [gateway.url],
    token: await gateway.createJoinToken(),
    args: ['--environment', `dir:${place}/env.tar`, '--weights-dir', place, '--engine-port', '1'],
    command: ['never-started'],
  });
  expect((await agent.exited).code).toBe(70);
  expect(agent.output).toMatch(/could not be started: the environment .* is not available: .*is not a \.tar/);
});
