/**
 * `npm start` runs a gateway on embedded storage, one agent and one mock engine. It prints the URL, a key and a working
 * curl command. `npm run start:worker` (`--worker`) does the same with the gateway on Cloudflare's own runtime, by
 * `wrangler dev`. Ctrl-C ends all three. `--keep DIR` keeps the gateway's data there; otherwise it is deleted
 * afterwards.
 */

import { once } from 'node:events';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { pageIsStale } from './gateway/hosts/node/serve/program-files.ts';
import { ProgressLine } from './packaging/install/progress-line.ts';
import { errorText } from './shared/text/error-text.ts';
import { neverRejects } from './shared/timing/in-background.ts';
import { engineCommand, startAgent } from './test/support/agent.ts';
import { Gateway } from './test/support/gateway.ts';
import { endAllWithin, freePort, Managed } from './test/support/processes.ts';
import { NODE, ROOT } from './test/support/where.ts';
import { WranglerGateway } from './test/support/wrangler-gateway.ts';

const DEFAULT_PORT = 8787;
const MODEL = 'stand-in';
/**
 * A slow machine needs minutes. A longer wait means that something hangs; a program that exits is reported immediately.
 */
const SERVING_MS = 10 * 60_000;
/** Time in which the gateway ends open requests, which it drains for 5 s, before it is killed. */
const GRACE_MS = 10_000;

const line = new ProgressLine();

/** True after the shutdown began: programs then end because of it. */
let ending = false;

async function portOr(wanted: number): Promise<number> {
  const probe = await fetch(`http://127.0.0.1:${wanted}/healthz`).then(
    () => true,
    () => false,
  );
  return probe ? freePort() : wanted;
}

async function buildPage(): Promise<void> {
  if (!(await pageIsStale())) return;
  line.step('building the dashboard, once and after a change of it');
  const build = new Managed([NODE, join(ROOT, 'build.ts'), 'dashboard'], { label: 'the build', cwd: ROOT });
  // The output of the build is complete after `close`.
  const [code] = await once(build.child, 'close');
  if (code !== 0) throw build.failure('failed');
}

async function start(port: number, data: string | undefined, worker: boolean): Promise<string> {
  const options = { port, ...(data === undefined ? {} : { data }) };
  await buildPage();
  line.step('starting the gateway');
  const gateway = worker ? await WranglerGateway.start(options) : await Gateway.start(options);
  const token = await gateway.createJoinToken('demo', 'laptop');
  line.step('starting the agent and the mock engine');
  const enginePort = await freePort();
  // 30 tokens a second: slow enough to see them arrive.
  const command = engineCommand(enginePort, '--model', MODEL, '--rate', '30');
  // Only keys of this gateway can send functions: the printed key, and those of its operator.
  const args = worker ? [] : ['--allow-functions', 'all'];
  const agent = await startAgent({ gateways: [gateway.url], token, command, args });
  const ended = (name: string) => () => {
    if (ending) return;
    ending = true;
    line.end();
    console.error(`${name} ended:\n${name === 'agent' ? agent.output : gateway.process.output}`);
    neverRejects(endAllWithin(GRACE_MS).then(() => process.exit(1)));
  };
  neverRejects(agent.exited.then(ended('agent')));
  neverRejects(gateway.process.exited.then(ended('gateway')));
  await gateway.serving(1, SERVING_MS, MODEL);
  const key = await gateway.createKey('demo');
  return `
OpenTela for the edge is up: a gateway${worker ? " on Cloudflare's runtime (wrangler dev)" : ''}, one agent, and one mock engine.
The mock engine repeats words from a fixed list; it is not a language model. To serve a real one, follow docs/quickstart-provider.md.
This command creates the join token that it needs:
  node_modules/.bin/otela-gateway tokens create --provider me --url ${gateway.url} --key-file ${gateway.data}/admin.key

  URL        ${gateway.url}/v1
  API key    ${key}
  dashboard  ${gateway.url}/ takes the same key
  model      ${MODEL}
  admin key  in ${gateway.data}/admin.key

  curl -N ${gateway.url}/v1/chat/completions -H 'Authorization: Bearer ${key}' \\
    -H 'Content-Type: application/json' \\
    -d '{"model":"${MODEL}","stream":true,"messages":[{"role":"user","content":"Hello"}]}'
${worker ? '' : functionsLine(gateway.url, key)}
Press Ctrl-C to stop everything.`;
}

function functionsLine(url: string, key: string): string {
  return `
  Python functions run on the same node (docs/functions.md):

  OTELA_GATEWAY=${url} OTELA_API_KEY=${key} \\
    PYTHONPATH=clients/python python3 clients/python/example.py
`;
}

const { values } = parseArgs({
  options: { port: { type: 'string' }, keep: { type: 'string' }, worker: { type: 'boolean', default: false } },
});
const stop = () => {
  if (ending) return;
  ending = true;
  line.end();
  neverRejects(endAllWithin(GRACE_MS).then(() => process.exit(0)));
};
process.on('SIGINT', stop);
process.on('SIGTERM', stop);
try {
  const port = values.port === undefined ? await portOr(DEFAULT_PORT) : Number(values.port);
  const ready = await start(port, values.keep, values.worker);
  line.end();
  console.log(ready);
} catch (error) {
  line.end();
  // Programs that the shutdown ends fail because of it.
  if (!ending) console.error(errorText(error));
  await endAllWithin(GRACE_MS);
  process.exitCode = 1;
}
