/**
 * A mock of huggingface.co: one repository, as its API lists it (https://huggingface.co/docs/hub/api), and `resolve`,
 * which sends small files itself and redirects large ones to another origin: a storage that accepts signed addresses
 * and no token.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { atEnd } from '../../support/processes.ts';
import { sha256 } from './cluster.ts';

export const COMMIT = 'd'.repeat(40);
/** Git's digest of a small file. */
export const gitDigest = (bytes: Buffer) =>
  createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex');

interface Hub {
  url: string;
  /** Requests to hub and storage, as `GET /path range token`. */
  seen: string[];
  /** Makes `commit` the content of `main` from now on. */
  move(commit: string, files: Readonly<Record<string, Buffer>>): void;
}

interface HubOptions {
  repository: string;
  /** By path; files that end in `.safetensors` are large. */
  files: Readonly<Record<string, Buffer>>;
  gated?: boolean;
  /** Required in every request to the hub. */
  token?: string;
  /** The storage cuts each response off after this many bytes of the file. */
  breakAt?: number | undefined;
  /**
   * The storage's response to a request for a range: the range, the whole file, or a range that begins a byte later.
   */
  ranges?: 'given' | 'whole' | 'later';
}

export async function startHub({
  repository,
  files,
  gated = false,
  token,
  breakAt,
  ranges = 'given',
}: HubOptions): Promise<Hub> {
  const seen: string[] = [];
  const commits = new Map([[COMMIT, files]]);
  let main = COMMIT;
  const note = (request: IncomingMessage) => {
    const { range = '-', authorization = '-' } = request.headers;
    seen.push(`${request.method} ${request.url} ${range} ${authorization}`);
  };
  const storage = await listening((request, response) => {
    note(request);
    const { searchParams: query } = new URL(request.url ?? '/', 'http://storage');
    const path = query.get('file') ?? '';
    if (request.headers.authorization !== undefined) return void response.writeHead(400).end('one mechanism alone');
    ranged(request, response, commits.get(query.get('commit') ?? COMMIT)?.[path] ?? Buffer.alloc(0), {
      breakAt,
      ranges,
    });
  });
  const hub = await listening((request, response) => {
    note(request);
    if (token !== undefined && request.headers.authorization !== `Bearer ${token}`)
      return void response
        .writeHead(401, { 'x-error-code': 'GatedRepo', 'x-error-message': `Access to ${repository} is restricted.` })
        .end('{"error":"restricted"}');
    const [path = ''] = (request.url ?? '').split('?');
    if (path === `/api/models/${repository}/revision/main`) return list(response);
    const [commit = '', name = ''] = path.replace(`/${repository}/resolve/`, '').split(/\/(.*)/);
    const bytes = commits.get(commit)?.[name];
    if (bytes === undefined) return void response.writeHead(404, { 'x-error-code': 'EntryNotFound' }).end();
    if (!name.endsWith('.safetensors')) return ranged(request, response, bytes, {});
    const headers = { 'x-linked-etag': `"${sha256(bytes)}"`, 'x-linked-size': bytes.length, 'x-repo-commit': commit };
    const other = commit === COMMIT ? '' : `&commit=${commit}`;
    response.writeHead(302, { ...headers, location: `${storage}/signed?file=${name}${other}` }).end();
  });
  const list = (response: ServerResponse) => {
    const siblings = Object.entries(commits.get(main) ?? {}).map(([rfilename, bytes]) => {
      const lfs = rfilename.endsWith('.safetensors')
        ? { lfs: { sha256: sha256(bytes), size: bytes.length, pointerSize: 135 } }
        : {};
      return { rfilename, size: bytes.length, blobId: gitDigest(bytes), ...lfs };
    });
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ id: repository, sha: main, private: false, gated: gated && 'auto', siblings }));
  };
  return {
    url: hub,
    seen,
    move: (commit, changed) => {
      commits.set(commit, changed);
      main = commit;
    },
  };
}

function ranged(
  request: IncomingMessage,
  response: ServerResponse,
  bytes: Buffer,
  { breakAt, ranges }: Pick<HubOptions, 'breakAt' | 'ranges'>,
): void {
  const wanted = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
  const from = wanted === 0 || ranges === 'whole' ? 0 : ranges === 'later' ? wanted + 1 : wanted;
  const range = from > 0 ? { 'content-range': `bytes ${from}-${bytes.length - 1}/${bytes.length}` } : {};
  response.writeHead(from > 0 ? 206 : 200, { 'content-length': bytes.length - from, ...range });
  if (breakAt === undefined || wanted > 0) return void response.end(bytes.subarray(from));
  response.write(bytes.subarray(0, breakAt), () => response.destroy());
}

async function listening(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<string> {
  const server: Server = createServer(answer);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
