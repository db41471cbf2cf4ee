/**
 * Passes requests from another address of this machine to the gateway. Only paths under /v1 pass: the admin API and the
 * page stay at the loopback address.
 */
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import { type AddressInfo, isIP } from 'node:net';
import { errorText } from '../../shared/text/error-text.ts';
import { UpError } from '../up-error.ts';

const CONNECTIONS_MAX = 256;
/** Headers of one connection: RFC 9110, section 7.6.1. */
const HOP_BY_HOP = ['connection', 'keep-alive', 'proxy-connection', 'te', 'transfer-encoding', 'upgrade'];

interface ShareListenerOptions {
  address: string;
  /** The first choice; another port if a program uses it. */
  port: number;
  gatewayPort(): number;
}

/** @throws UpError if the address is not one of this machine */
export async function openShareListener(options: ShareListenerOptions): Promise<{ url: string; close(): void }> {
  const server = createServer((asked, answer) => pass(asked, answer, options.gatewayPort()));
  server.maxConnections = CONNECTIONS_MAX;
  const listen = (port: number) =>
    new Promise<void>((resolve, reject) => server.once('error', reject).listen(port, options.address, resolve));
  await listen(options.port).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'EADDRINUSE') return listen(0);
    throw new UpError(
      `This machine cannot listen at ${options.address}: ${errorText(error)}`,
      'Give one of its addresses: ip addr, or ifconfig, shows them.',
    );
  });
  const { port } = server.address() as AddressInfo;
  const close = () => {
    server.close();
    server.closeAllConnections();
  };
  const host = isIP(options.address) === 6 ? `[${options.address}]` : options.address;
  return { url: `http://${host}:${port}`, close };
}

function pass(asked: IncomingMessage, answer: ServerResponse, port: number): void {
  // The parser removes dot segments, also encoded ones, as the gateway's does.
  const url = URL.parse(asked.url ?? '', 'http://gateway');
  if (url === null || !url.pathname.startsWith('/v1/')) {
    const message = 'Only paths under /v1 are shared.';
    answer.writeHead(404, { 'content-type': 'application/json' });
    answer.end(JSON.stringify({ error: { message, type: 'invalid_request_error', param: null, code: 'not_found' } }));
    return;
  }
  const headers = Object.fromEntries(Object.entries(asked.headers).filter(([name]) => !HOP_BY_HOP.includes(name)));
  const passed = request({
    host: '127.0.0.1',
    port,
    method: asked.method,
    path: url.pathname + url.search,
    headers,
  });
  passed.once('response', (from) => {
    const kept = Object.entries(from.headers).filter(([name]) => !HOP_BY_HOP.includes(name));
    answer.writeHead(from.statusCode ?? 502, Object.fromEntries(kept));
    from.once('error', () => answer.destroy());
    from.pipe(answer);
  });
  passed.once('error', () => answer.destroy());
  answer.once('close', () => passed.destroy());
  asked.pipe(passed);
}
