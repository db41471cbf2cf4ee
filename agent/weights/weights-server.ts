/**
 * A node's answers to other nodes, over connections that the mesh has authenticated:
 *
 *     POST /v1/coordinate                 questions to the coordinator of some blobs
 *     GET  /v1/manifests/{id}             a manifest, for nodes of the same provider
 *     GET  /v1/blobs/{key}?size&piece&from   pieces from `from` on, as they become available; see piece-stream.ts
 *     GET  /v1/held                       models on this node, for nodes of the same provider
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import * as z from 'zod';
import { readTextAtMost } from '../../shared/collections/read-at-most.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import {
  type CoordinatorAnswer,
  type CoordinatorQuestion,
  coordinatorQuestionSchema,
} from '../../shared/weights/blob-coordinator.ts';
import { pieceCount, pieceSpan } from '../../shared/weights/blob-pieces.ts';
import { BLOB_MAX_BYTES, digestSchema } from '../../shared/weights/weights-manifest.ts';
import type { ModelHolding } from '../host/control-protocol.ts';
import type { Blob } from './blob.ts';
import type { WeightsAccess } from './blob-access.ts';
import type { Transfer, Uploads } from './blob-uploads.ts';
import type { PeerName } from './peer-directory.ts';
import { pieceHead, WAITING_EVERY_MS } from './piece-stream.ts';
import { asWeightsError } from './weights-error.ts';
import type { Store } from './weights-store.ts';

/** Bytes of one read from the disk and one write to the socket. The agent's thread encrypts them in 0.2 ms. */
export const SEND_CHUNK_BYTES = 256 * 1024;
/** Size of one write to a slow reader. It is small, so that even a slow reader takes it within STALL_MS. */
const THROTTLED_CHUNK_BYTES = 16 * 1024;
export const ROWS_MAX = 512;
const BODY_MAX_BYTES = 1024 * 1024;
/** Maximum number of connections: all nodes of the largest cluster, twice. */
const CONNECTIONS_MAX = 2048;
/** Maximum number of connections per node. A client has four at a time, and closed ones may be noticed late. */
export const CONNECTIONS_PER_PEER_MAX = 16;
/** A transfer ends if its reader takes nothing for this long. Even a slow disk takes a piece within a second. */
const STALL_MS = 60_000;
/**
 * Maximum wait until the first bytes of a requested blob arrive here. A coordinator may name this node before its own
 * pull has begun.
 */
const BEGIN_WITHIN_MS = 10_000;
/** Interval of checks for connections of ended sessions, which are closed then. */
const SWEEP_MS = 5_000;
/** Timeout of an idle connection. Longer than a pull takes to request its next blob. */
const IDLE_MS = 60_000;

const rowsSchema = z.array(coordinatorQuestionSchema).max(ROWS_MAX);
const blobQuerySchema = z.object({
  key: digestSchema,
  size: z.coerce.number().int().nonnegative().max(BLOB_MAX_BYTES),
  piece: z.coerce.number().int().positive(),
  from: z.coerce.number().int().nonnegative(),
});

interface ServerOptions {
  store: Store;
  access: WeightsAccess;
  uploads: Uploads;
  /** True if a pull runs here, so that a missing blob may arrive. */
  expects(): boolean;
  /** @param providerOnly true if a node of the same provider asks about data that only those nodes may have */
  coordinate(session: string, questions: readonly CoordinatorQuestion[], providerOnly: boolean): CoordinatorAnswer[];
  held(): Promise<ModelHolding[]>;
  stallMs?: number;
  log(line: string): void;
}

interface Connection {
  peer: PeerName;
  admits(): boolean;
  answering: boolean;
}

export class WeightsServer {
  readonly #options: ServerOptions;
  readonly #server: Server;
  readonly #sweep: NodeJS.Timeout;
  /** Open connections. At most CONNECTIONS_MAX. */
  readonly #connections = new Map<Duplex, Connection>();
  constructor(options: ServerOptions) {
    this.#options = options;
    this.#server = createServer({ keepAliveTimeout: IDLE_MS, requestTimeout: 0 }, (request, response) => {
      this.#answer(request, response).catch((error: unknown) => {
        if (!response.headersSent) refuse(response, 500, asWeightsError(error).message);
        else response.destroy();
      });
    });
    this.#sweep = setInterval(() => {
      for (const [socket, { admits }] of this.#connections) if (!admits()) socket.destroy();
    }, SWEEP_MS).unref();
  }

  /** Takes over an authenticated connection of `peer`. @param admits true while that session has not ended */
  take(socket: Duplex, peer: PeerName, admits: () => boolean): void {
    const ofPeer = [...this.#connections.values()].filter((one) => one.peer.session === peer.session).length;
    const full = this.#connections.size >= CONNECTIONS_MAX || ofPeer >= CONNECTIONS_PER_PEER_MAX;
    if (full || !admits() || !this.#options.access.isNear(peer)) return void socket.destroy();
    this.#connections.set(socket, { peer, admits, answering: false });
    socket.on('error', () => {});
    socket.once('close', () => this.#connections.delete(socket));
    this.#server.emit('connection', socket);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const connection = this.#connections.get(request.socket);
    // Pipelined requests would all run concurrently. Our clients never send them.
    if (connection?.answering !== false || !connection.admits()) return void request.socket.destroy();
    connection.answering = true;
    response.once('close', () => {
      connection.answering = false;
    });
    const { peer } = connection;
    const url = new URL(request.url ?? '/', 'http://peer');
    const [, version, what = '', id = ''] = url.pathname.split('/');
    if (version !== 'v1') return refuse(response, 404, 'there is no such path');
    if (request.method === 'POST' && what === 'coordinate')
      return this.#coordinate(peer, id === 'own', request, response);
    if (request.method !== 'GET') return refuse(response, 405, 'GET');
    if (what === 'manifests') return this.#manifest(peer, id, response);
    if (what === 'held') return this.#held(peer, response);
    if (what === 'blobs') return this.#blob(peer, { ...Object.fromEntries(url.searchParams), key: id }, response);
    refuse(response, 404, 'there is no such path');
  }

  async #coordinate(
    peer: PeerName,
    providerOnly: boolean,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    if (providerOnly && !this.#options.access.isSameProvider(peer))
      return refuse(response, 403, 'only for nodes of the same provider');
    const text = await readTextAtMost(request, BODY_MAX_BYTES);
    if (text === undefined) return refuse(response, 413, `more than ${BODY_MAX_BYTES} bytes`);
    const rows = rowsSchema.safeParse(tryParseJson(text));
    if (!rows.success) return refuse(response, 400, z.prettifyError(rows.error));
    json(response, this.#options.coordinate(peer.session, rows.data, providerOnly));
  }

  async #manifest(peer: PeerName, id: string, response: ServerResponse): Promise<void> {
    const { access, store } = this.#options;
    if (!access.isSameProvider(peer))
      return refuse(response, 403, 'lists of files are only for nodes of the same provider');
    const kept = digestSchema.safeParse(id).success ? await store.manifests.get(id) : undefined;
    if (kept === undefined) return refuse(response, 404, 'this node does not have the manifest');
    json(response, { manifest: kept.manifest, readAt: kept.readAt });
  }

  async #held(peer: PeerName, response: ServerResponse): Promise<void> {
    if (!this.#options.access.isSameProvider(peer)) return refuse(response, 403, 'only for nodes of the same provider');
    json(response, await this.#options.held());
  }

  async #blob(peer: PeerName, query: Record<string, string>, response: ServerResponse): Promise<void> {
    const { access, store, uploads, expects } = this.#options;
    const read = blobQuerySchema.safeParse(query);
    if (!read.success) return refuse(response, 400, z.prettifyError(read.error));
    const { key, size, piece, from } = read.data;
    const { pieceBytes } = store.options;
    if (piece !== pieceBytes) return refuse(response, 409, `pieces on this node have ${pieceBytes} bytes`);
    if (from > pieceCount({ size, pieceBytes })) return refuse(response, 416, 'there is no such piece');
    if (!access.mayHave(peer, key)) return refuse(response, 403, 'this node may not have that blob');
    const absent = () => refuse(response, 404, 'this node has no piece of that blob');
    // Check this before a slot is taken: a request for a blob that never arrives here would block other transfers.
    if (!(await store.begun({ key, size }, expects() ? BEGIN_WITHIN_MS : 0))) return absent();
    const transfer = await uploads.acquire(peer.session, () => response.destroy());
    if (transfer === undefined) return refuse(response, 503, `${uploads.max} transfers already run`);
    let blob: Blob | undefined;
    try {
      if (response.destroyed) return;
      blob = await store.read({ key, size });
      if (blob === undefined) return absent();
      await this.#send(blob, from, response, transfer);
    } finally {
      uploads.release(transfer);
      await blob?.close();
    }
  }

  async #send(blob: Blob, from: number, response: ServerResponse, transfer: Transfer): Promise<void> {
    const { uploads, stallMs = STALL_MS } = this.#options;
    response.writeHead(200, { 'content-type': 'application/octet-stream' });
    response.flushHeaders();
    for (let index = from; index < blob.pieces; index++) {
      while (!((await uploads.awaitTurn(transfer, WAITING_EVERY_MS)) && (await blob.piece(index, WAITING_EVERY_MS))))
        await written(response, pieceHead(0, Buffer.alloc(32)), stallMs);
      transfer.beginPiece();
      const { offset, length } = pieceSpan(blob, index);
      await written(response, pieceHead(length, blob.digest(index) ?? Buffer.alloc(32)), stallMs);
      for (let done = 0; done < length; ) {
        const most = transfer.isThrottled ? THROTTLED_CHUNK_BYTES : SEND_CHUNK_BYTES;
        const buffer = Buffer.allocUnsafe(Math.min(most, length - done));
        const bytes = await blob.read(buffer, offset + done);
        if (bytes === 0) throw new Error(`${blob.key} is shorter than it was`);
        await uploads.pace(bytes);
        await transfer.chargeWrite(bytes, written(response, buffer.subarray(0, bytes), stallMs));
        done += bytes;
      }
    }
    response.end();
  }

  close(): void {
    clearInterval(this.#sweep);
    for (const socket of this.#connections.keys()) socket.destroy();
    this.#server.close();
  }
}

/**
 * Writes bytes. Resolves when more may be written.
 * @throws Error if the reader has disconnected, or takes nothing for `stallMs`
 */
async function written(response: ServerResponse, bytes: Buffer, stallMs: number): Promise<void> {
  if (response.destroyed) throw new Error('the reader has disconnected');
  if (response.write(bytes)) return;
  const gone = new AbortController();
  const onClose = () => gone.abort();
  const timer = setTimeout(onClose, stallMs);
  response.once('close', onClose);
  try {
    await once(response, 'drain', { signal: gone.signal });
  } finally {
    clearTimeout(timer);
    response.off('close', onClose);
  }
}

function json(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify(value));
}

function refuse(response: ServerResponse, status: number, message: string): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ error: { message } }));
}
