/** Requests for weights to other nodes; weights-server.ts answers them. */
import { Agent, type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import * as z from 'zod';
import { readTextAtMost } from '../../shared/collections/read-at-most.ts';
import {
  type CoordinatorAnswer,
  type CoordinatorQuestion,
  coordinatorAnswerSchema,
} from '../../shared/weights/blob-coordinator.ts';
import {
  MANIFEST_MAX_BYTES,
  type WeightsManifest,
  weightsManifestSchema,
} from '../../shared/weights/weights-manifest.ts';
import { type ModelHolding, modelHoldingSchema } from '../host/control-protocol.ts';
import type { Peers } from './peer-directory.ts';
import { asWeightsError, WeightsError } from './weights-error.ts';
import { ROWS_MAX } from './weights-server.ts';

/** Maximum number of models in a list of one node. */
const HOLDINGS_MAX = 1000;

/** Timeout of a question to another node. A node that does not answer in time is skipped. */
const ANSWER_TIMEOUT_MS = 5_000;
/** Maximum number of nodes to which connections are kept: the coordinators and senders of one pull. */
const NODES_MAX = 32;
const SOCKETS_PER_NODE = 4;
/**
 * Timeout of the response's head to a request for a blob. It is long, because the other node may wait for a free slot
 * and for the blob's first bytes.
 */
const HEAD_MS = 20_000;

const manifestAnswerSchema = z.object({ manifest: weightsManifestSchema, readAt: z.number() });

export class WeightsClient {
  readonly #peers: Peers;
  /** HTTP agents by session, least recently used first. At most NODES_MAX. */
  readonly #agents = new Map<string, Agent>();

  constructor(peers: Peers) {
    this.#peers = peers;
  }

  /** @throws WeightsError */
  async coordinate(
    session: string,
    questions: readonly CoordinatorQuestion[],
    providerOnly: boolean,
    signal: AbortSignal,
  ): Promise<CoordinatorAnswer[]> {
    const path = providerOnly ? '/v1/coordinate/own' : '/v1/coordinate';
    const text = await this.#text(session, 'POST', path, signal, JSON.stringify(questions));
    return parse(z.array(coordinatorAnswerSchema).max(ROWS_MAX), text);
  }

  /** @throws WeightsError */
  async manifest(
    session: string,
    id: string,
    signal: AbortSignal,
  ): Promise<{ manifest: WeightsManifest; readAt: number }> {
    return parse(manifestAnswerSchema, await this.#text(session, 'GET', `/v1/manifests/${id}`, signal));
  }

  /** @throws WeightsError */
  async held(session: string, signal: AbortSignal): Promise<ModelHolding[]> {
    return parse(z.array(modelHoldingSchema).max(HOLDINGS_MAX), await this.#text(session, 'GET', '/v1/held', signal));
  }

  /** Requests a blob's pieces in the format of piece-stream.ts. @throws WeightsError */
  async blob(
    session: string,
    { key, size, piece, from }: { key: string; size: number; piece: number; from: number },
    signal: AbortSignal,
  ): Promise<AsyncIterable<Buffer>> {
    const late = AbortSignal.timeout(HEAD_MS);
    const answer = await this.#request(
      session,
      'GET',
      `/v1/blobs/${key}?size=${size}&piece=${piece}&from=${from}`,
      AbortSignal.any([signal, late]),
      signal,
    );
    return answer;
  }

  async #text(session: string, method: string, path: string, signal: AbortSignal, body?: string): Promise<string> {
    const limited = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_TIMEOUT_MS)]);
    const answer = await this.#request(session, method, path, limited, limited, body);
    let text: string | undefined;
    try {
      text = await readTextAtMost(answer, 2 * MANIFEST_MAX_BYTES);
    } catch (error) {
      // A node that stalls after the head of its response is as faulty as a node that sends no head.
      if (limited.aborted && !signal.aborted) throw new WeightsError('unavailable', `${session} does not answer`);
      throw asWeightsError(error);
    }
    if (text === undefined)
      throw new WeightsError('wrong', `the response of ${session} is longer than ${2 * MANIFEST_MAX_BYTES} bytes`);
    return text;
  }

  /** @param head ends the wait for the response's head @param signal ends the whole request */
  #request(
    session: string,
    method: string,
    path: string,
    head: AbortSignal,
    signal: AbortSignal,
    body?: string,
  ): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const fail = (error: unknown) => reject(asWeightsError(error));
      if (head.aborted) return fail(new WeightsError('stopped', 'the transfer was cancelled'));
      const headers =
        body === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
      const made: ClientRequest = httpRequest({ agent: this.#agent(session), method, path, host: 'peer', headers });
      const stop = () => made.destroy(new WeightsError('unavailable', `${session} does not answer`));
      const end = () => made.destroy(new WeightsError('stopped', 'the transfer was cancelled'));
      head.addEventListener('abort', stop, { once: true });
      signal.addEventListener('abort', end, { once: true });
      made.once('error', fail);
      made.once('close', () => {
        head.removeEventListener('abort', stop);
        signal.removeEventListener('abort', end);
      });
      made.once('response', (answer) => {
        head.removeEventListener('abort', stop);
        made.off('error', fail);
        made.on('error', (error) => answer.destroy(error));
        if (answer.statusCode === 200) return resolve(answer);
        answer.resume();
        const code = answer.statusCode === 403 ? 'refused' : 'unavailable';
        reject(new WeightsError(code, `${session} answers ${answer.statusCode} to ${path.split('?')[0]}`));
      });
      made.end(body);
    });
  }

  #agent(session: string): Agent {
    const known = this.#agents.get(session);
    const agent = known ?? new PeerAgent(this.#peers, session);
    this.#agents.delete(session);
    this.#agents.set(session, agent);
    const [oldest] = this.#agents.keys();
    // Sockets in use stay open until their responses end.
    if (this.#agents.size > NODES_MAX && oldest !== undefined) this.#agents.delete(oldest);
    return agent;
  }

  close(): void {
    for (const agent of this.#agents.values()) agent.destroy();
    this.#agents.clear();
  }
}

class PeerAgent extends Agent {
  readonly #peers: Peers;
  readonly #session: string;

  constructor(peers: Peers, session: string) {
    // The timeout is shorter than the server's limit, so the server does not close a connection while a request is
    // being sent.
    super({ keepAlive: true, maxSockets: SOCKETS_PER_NODE, maxFreeSockets: 1, timeout: 30_000 });
    this.#peers = peers;
    this.#session = session;
  }

  override createConnection(_options: unknown, done?: (error: Error | null, stream: Duplex) => void): undefined {
    const late = AbortSignal.timeout(ANSWER_TIMEOUT_MS);
    this.#peers.connect(this.#session, late).then(
      (socket) => done?.(null, socket),
      (error: unknown) => {
        // Node accepts an error here, although its types do not: `createConnection` in https://nodejs.org/api/http.html
        const failed: ((error: Error) => void) | undefined = done as ((error: Error) => void) | undefined;
        failed?.(asWeightsError(error));
      },
    );
  }
}

function parse<T>(schema: z.ZodType<T>, text: string): T {
  try {
    return schema.parse(JSON.parse(text));
  } catch (cause) {
    throw new WeightsError('wrong', 'another node sent a response that does not match the request', { cause });
  }
}
