/** A proxy that shows a server below a path of another origin, as portals of clusters do. */
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { atEnd } from './processes.ts';

interface PathProxyOptions {
  /** URL of the server. */
  to: string;
  /** The path, without a slash at its end. */
  path: string;
  /** `named`: the proxy removes the path and names it; `removed`: only the first; `kept`: neither. */
  mode: 'named' | 'removed' | 'kept';
}

export interface PathProxy {
  /** URL below which the server is shown, with a slash at its end. */
  url: string;
  /** Paths outside of it that were asked for. */
  strays: string[];
}

export async function startPathProxy({ to, path, mode }: PathProxyOptions): Promise<PathProxy> {
  const { hostname, port } = new URL(to);
  const strays: string[] = [];
  const server = createServer((asked, response) => {
    const url = asked.url ?? '/';
    if (!url.startsWith(`${path}/`)) {
      strays.push(url);
      return response.writeHead(404).end('this is another application of the portal');
    }
    const headers = { ...asked.headers, ...(mode === 'named' && { 'x-forwarded-prefix': path }) };
    const passed = request(
      { hostname, port, method: asked.method, path: mode === 'kept' ? url : url.slice(path.length), headers },
      (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
      },
    );
    passed.on('error', () => response.destroy());
    response.on('close', () => passed.destroy());
    asked.pipe(passed);
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}${path}/`, strays };
}
