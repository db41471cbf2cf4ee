/** The server of `otela seal`: requests arrive in clear text on loopback, and leave this machine sealed. */

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { causeText } from '../../node/gateway-client.ts';
import { readAtMost } from '../../shared/collections/read-at-most.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import { printable } from '../../shared/terminal/printable.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { type EvidenceVerifier, type Pins, SealClientError, type SealNode, sealedFetch } from '../seal/index.ts';
import { PAGE_HEADERS, pageText } from './seal-page.ts';

interface SealCommandOptions {
  /** The gateway's URL up to `/v1`. */
  gateway: string;
  pins: Pins | undefined;
  port: number;
  /** True to accept the gateway's claims about aliases of models. */
  aliases?: boolean;
  /** Seals only to nodes whose evidence this verifier accepts. */
  verifier?: EvidenceVerifier | undefined;
}

/** Maximum length of a body, the same as at a gateway. */
const BODY_MAX_BYTES = 33 * 1024 * 1024;
const CONNECTIONS_MAX = 256;
/** Maximum number of remembered lines about nodes; the oldest is dropped. */
const PRINTED_MAX = 1024;
/** Headers that apply only to one connection. */
const HOP_BY_HOP = /^(?:host|connection|content-length|transfer-encoding|keep-alive|expect|te|upgrade)$/;

/**
 * Forbids scripts in responses. A link can open any address of this server in a browser. Without this, a gateway's
 * script would run in this origin, and read what a user types into our own page.
 */
const NO_PAGE = [
  ['content-security-policy', "default-src 'none'; sandbox"],
  ['x-content-type-options', 'nosniff'],
];

/** Prints a line only if it is not among the `max` most recent lines. */
export function onceEach(print: (line: string) => void, max: number): (line: string) => void {
  const told = new Set<string>();
  return (line) => {
    const known = told.delete(line);
    told.add(line);
    if (known) return;
    const [oldest] = told;
    if (told.size > max && oldest !== undefined) told.delete(oldest);
    print(line);
  };
}

/** Resolves when the server listens. It serves until the process ends. */
export async function sealCommand(
  { gateway, pins, port, aliases = false, verifier }: SealCommandOptions,
  out: Output,
): Promise<{ port: number; close(): void }> {
  const printNew = onceEach((line) => out.print(line), PRINTED_MAX);
  const onAnswer = ({ session, provider, mode, kid }: SealNode) =>
    printNew(printable(`sealed to ${session} of ${provider}, key ${kid}: ${KEY_ORIGINS[mode]}`));
  const fetch = sealedFetch({ pins, aliases, onAnswer, verifier });
  const html = pageText(gateway, pins && Object.keys(pins));
  const server = createServer((request, response) => neverRejects(serve(request, response, { gateway, fetch, html })));
  server.maxConnections = CONNECTIONS_MAX;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    // Only loopback, because requests arrive here in clear text.
    server.listen(port, '127.0.0.1', resolve);
  });
  const address = server.address();
  const listens = typeof address === 'object' && address !== null ? address.port : port;
  if (pins === undefined)
    out.complain(
      'warning: without --pin, the keys of nodes come from the gateway, and a lying gateway is not detected',
    );
  out.print(`chat page: http://127.0.0.1:${listens}/`);
  out.print(`otela seal ready http://127.0.0.1:${listens}/v1`);
  return { port: listens, close: () => server.close() };
}

const KEY_ORIGINS = {
  pinned: 'signed by the pinned root key of its provider',
  registry: 'not verified, only claimed by the gateway',
} as const;

async function serve(
  request: IncomingMessage,
  response: ServerResponse,
  { gateway, fetch, html }: { gateway: string; fetch: typeof globalThis.fetch; html: string },
) {
  const left = new AbortController();
  response.on('close', () => left.abort());
  try {
    // Pages of other sites in the user's browser must not use this endpoint.
    const { host, origin } = request.headers;
    if (!isLoopback(host) || (origin !== undefined && origin !== `http://${host}`))
      return refuse(response, 403, 'pages of other sites may not use this address');
    if (request.method === 'GET' && request.url === '/') return void response.writeHead(200, PAGE_HEADERS).end(html);
    const body = await readAtMost(request, BODY_MAX_BYTES);
    if (body === undefined) return refuse(response, 413, `the body is larger than ${BODY_MAX_BYTES} bytes`);
    const answer = await fetch(gateway + (request.url ?? '/'), {
      method: request.method ?? 'GET',
      headers: headersOf(request),
      signal: left.signal,
      ...(body.length > 0 && { body }),
    });
    response.writeHead(
      answer.status,
      Object.fromEntries([
        ...[...answer.headers].filter(([name]) => !HOP_BY_HOP.test(name) && name !== 'content-encoding'),
        ...NO_PAGE,
      ]),
    );
    if (answer.body === null) response.end();
    else await pipeline(Readable.from(answer.body), response);
  } catch (error) {
    if (response.headersSent || left.signal.aborted) return void response.destroy();
    const refused = error instanceof SealClientError && error.code !== 'cut' && error.code !== 'not_opened';
    refuse(response, refused ? 400 : 502, why(error, gateway));
  }
}

/** If no server answers, `fetch` only reports "fetch failed". The cause is more useful. */
function why(error: unknown, gateway: string): string {
  if (!(error instanceof TypeError)) return errorText(error);
  return `${gateway} cannot be reached: ${causeText(error)}`;
}

function isLoopback(host: string | undefined): boolean {
  return /^(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?$/.test(host ?? '');
}

function headersOf({ headers }: IncomingMessage): [string, string][] {
  return Object.entries(headers).flatMap(([name, value]): [string, string][] =>
    typeof value === 'string' && !HOP_BY_HOP.test(name) ? [[name, value]] : [],
  );
}

function refuse(response: ServerResponse, status: number, message: string): void {
  const error = { message: `otela seal: ${message}`, type: 'invalid_request_error', param: null, code: 'seal_refused' };
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ error }));
}
