/** Small requests go by the inlet where the public socket ends TLS too: on real connections, with clients that leave as they do there. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, type TLSSocket } from 'node:tls';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { NO_OPENSSL, OPENSSL, selfSigned, trust } from '../../support/certificate.ts';
import { type Engine, startEngine } from '../../support/engine.ts';
import { Gateway } from '../../support/gateway.ts';
import { chatBody, MODEL } from '../../support/house.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { postBytes } from '../../support/raw.ts';

/** workerd writes the names of headers that it knows with capitals; the process that has the public socket does not. */
const byInlet = /\r\ncontent-type: application\/json\r\n/;

let gateway: Gateway;
let engine: Engine;
let key: string;
let ca: Buffer;
beforeAll(async () => {
  if (!OPENSSL) return;
  const { cert, key: pem } = selfSigned(await temporaryDirectory(), 'gateway', ['IP:127.0.0.1']);
  ca = readFileSync(cert);
  trust(ca.toString());
  gateway = await Gateway.start({ args: ['--tls-cert', cert, '--tls-key', pem] });
  engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  key = await gateway.createKey();
  const token = await gateway.createJoinToken();
  await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, env: { NODE_EXTRA_CA_CERTS: cert } });
  await gateway.serving(1);
});
afterAll(endAll);
beforeEach(({ skip }) => skip(!OPENSSL, NO_OPENSSL));

async function client() {
  const socket: TLSSocket = connect({ port: gateway.port, host: '127.0.0.1', ca });
  const seen = { socket, heard: '', closed: false };
  socket.on('data', (piece) => {
    seen.heard += piece;
  });
  socket.on('close', () => {
    seen.closed = true;
  });
  await once(socket, 'secureConnect');
  socket.on('error', () => undefined);
  return seen;
}
const bytesOf = (body: unknown) =>
  postBytes(`${gateway.url}/v1/chat/completions`, { authorization: `Bearer ${key}` }, body);

it('requests ahead of their answers, and one in pieces, are answered in their order', async () => {
  const one = await client();
  one.socket.write([4, 1].map((tokens) => bytesOf(chatBody({ tokens, tokensPerSecond: 50 }))).join(''));
  const last = bytesOf(chatBody({ tokens: 2 }));
  for (let at = 0; at < last.length; at += 50) {
    one.socket.write(last.slice(at, at + 50));
    await new Promise(setImmediate);
  }
  const counts = () => [...one.heard.matchAll(/"completion_tokens":(\d+)/g)].map(([, count]) => Number(count));
  await eventually('all', 10_000, () => (counts().length === 3 ? true : undefined));
  expect(counts()).toEqual([4, 1, 2]);
  expect(one.heard).toMatch(byInlet);
  one.socket.destroy();
});

it('a stream arrives whole, and the next request on its connection is answered', async () => {
  const one = await client();
  one.socket.write(bytesOf(chatBody({ tokens: 20, tokensPerSecond: 100 }, { stream: true })));
  await eventually('the stream', 10_000, () => (one.heard.endsWith('0\r\n\r\n') ? true : undefined));
  expect(one.heard.match(/data: \[DONE\]/g)).toHaveLength(1);
  one.socket.write(bytesOf(chatBody({ tokens: 3 })));
  await eventually('the next', 5_000, () => (one.heard.includes('"completion_tokens":3') ? true : undefined));
  one.socket.destroy();
});

it.each([
  ['waits', { tokens: 1_000, tokensPerSecond: 20 }, {}, 'destroy'],
  ['waits, and says goodbye', { tokens: 1_000, tokensPerSecond: 20 }, {}, 'end'],
  ['reads a stream', { tokens: 1_000, tokensPerSecond: 20 }, { stream: true }, 'destroy'],
  ['reads a stream, and says goodbye', { tokens: 1_000, tokensPerSecond: 20 }, { stream: true }, 'end'],
] as const)('who leaves while it %s lets the engine go within a second', async (_what, standIn, more, how) => {
  const one = await client();
  one.socket.write(bytesOf(chatBody(standIn, more)));
  await eventually('the engine has it', 5_000, () => (engine.running() > 0 ? true : undefined));
  if ('stream' in more) await eventually('tokens', 5_000, () => (one.heard.includes('data: ') ? true : undefined));
  one.socket[how]();
  await eventually('the engine is let go', 1_500, () => (engine.running() === 0 ? true : undefined));
  one.socket.destroy();
});
