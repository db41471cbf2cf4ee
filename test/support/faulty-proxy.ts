/** An HTTP proxy in front of one server, which breaks responses as a test says. */
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { atEnd } from './processes.ts';

/**
 * The fault of one response. `cut`: the connection breaks after this many bytes of the body; `stall`: nothing follows
 * after this many bytes; `lose`: the server gets the request, but the client gets no response; `answer`: the proxy
 * responds itself, without the server.
 */
type Fault =
  | { kind: 'cut'; afterBytes: number }
  | { kind: 'stall'; afterBytes: number }
  | { kind: 'lose' }
  | { kind: 'answer'; status: number; body: string };

export interface FaultyProxy {
  url: string;
  /** Returns the fault for a request; undefined: none. */
  fault: (asked: { method: string; path: string }) => Fault | undefined;
  /** The requests that arrived, as `METHOD path`. */
  asked: string[];
}

export async function faultyProxy(target: string): Promise<FaultyProxy> {
  const proxy: FaultyProxy = { url: '', fault: () => undefined, asked: [] };
  const server = createServer((from, to) => {
    const [method, path] = [from.method ?? '', from.url ?? ''];
    proxy.asked.push(`${method} ${path}`);
    const fault = proxy.fault({ method, path });
    if (fault?.kind === 'answer') return answer(from, to, fault);
    const up = request(new URL(path, target), { method, headers: from.headers }, (answered) => {
      if (fault?.kind === 'lose') return void answered.resume().once('end', () => to.destroy());
      to.writeHead(answered.statusCode ?? 502, answered.headers);
      pass(answered, to, fault);
    });
    up.on('error', () => to.destroy());
    from.pipe(up);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  proxy.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return proxy;
}

function answer(from: IncomingMessage, to: ServerResponse, { status, body }: Fault & { kind: 'answer' }): void {
  from.resume().once('end', () => to.writeHead(status).end(body));
}

function pass(from: IncomingMessage, to: ServerResponse, fault: Fault | undefined): void {
  if (fault?.kind !== 'cut' && fault?.kind !== 'stall') return void from.pipe(to);
  let left = fault.afterBytes;
  from.on('data', (piece: Buffer) => {
    to.write(piece.subarray(0, left), () => {
      if (left === 0 && fault.kind === 'cut') to.destroy();
    });
    left = Math.max(0, left - piece.length);
    if (left === 0) from.destroy();
  });
}
