/** A certificate authority that answers as a test wants. By default it keeps to RFC 8555 and decides immediately. */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { selfSigned, trust } from '../certificate.ts';
import { atEnd, temporaryDirectory } from '../processes.ts';

interface Answer {
  status?: number;
  headers?: Record<string, string>;
  body?: unknown;
}

export interface Authority {
  url: string;
  /** Paths of all requests. */
  asked: string[];
}

/** @param lies answers by path, instead of those of an honest authority; the function gets the authority's URL */
export async function startAuthority(lies: (url: string) => Record<string, Answer>): Promise<Authority> {
  const directory = await temporaryDirectory('otela-authority');
  const { cert, key } = selfSigned(directory, 'authority', ['IP:127.0.0.1']);
  trust(readFileSync(cert, 'utf8'));
  const asked: string[] = [];
  let answers: Record<string, Answer> = {};
  const server = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, async (request, response) => {
    await text(request);
    const path = request.url ?? '';
    asked.push(path);
    const { status = 200, headers, body = {} } = answers[path] ?? { status: 404 };
    response.writeHead(status, { 'replay-nonce': 'abc', ...headers });
    response.end(typeof body === 'string' ? body : JSON.stringify(body));
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const url = `https://127.0.0.1:${port}`;
  answers = { ...honest(url), ...lies(url) };
  return { url: `${url}/dir`, asked };
}

function honest(url: string): Record<string, Answer> {
  const order = { authorizations: [`${url}/authz`], finalize: `${url}/finalize` };
  const challenge = { type: 'http-01', url: `${url}/challenge`, token: 'token' };
  return {
    '/dir': { body: { newNonce: `${url}/nonce`, newAccount: `${url}/account`, newOrder: `${url}/new` } },
    '/nonce': {},
    '/account': { headers: { location: `${url}/account/1` } },
    '/new': { status: 201, headers: { location: `${url}/order` }, body: { status: 'pending', ...order } },
    '/order': { body: { status: 'ready', ...order } },
    '/authz': { body: { status: 'pending', identifier: { value: 'llm.otela.test' }, challenges: [challenge] } },
    '/challenge': {},
  };
}
