/**
 * A `fetch` that seals requests to nodes of providers that its caller trusts, and opens their responses. It is for SDKs
 * that take a fetch (`new OpenAI({ fetch: sealedFetch({ pins }) })`). The gateway in between sees the model, the sizes
 * and the times.
 */
import { ENDPOINTS } from '../../shared/openai/endpoints.ts';
import { isSealedType, RESUME_HEADER } from '../../shared/seal/hpke-suite.ts';
import { isRecord } from '../../shared/seal/is-record.ts';
import { ANSWER_HEADERS } from '../../shared/seal/sealed-plaintext.ts';
import { AnswerOpener, type OpenedPart } from './answer-opener.ts';
import { type SaidUsage, UsageReader } from './answer-usage.ts';
import { type EvidenceVerifier, VerdictCache } from './evidence-verdicts.ts';
import { withModelName } from './model-name.ts';
import { Candidates, type Pins, type SealNode } from './pinned-candidates.ts';
import { SealClientError } from './seal-client-error.ts';
import { type ClearRequest, type SealedRequest, seal } from './seal-request.ts';

export interface SealOptions {
  /**
   * Root keys by provider, as `otela-agent vouch` prints them: mode `pinned`. Absent: mode `registry`, which trusts the
   * gateway about the nodes' keys. Mode `registry` protects against a gateway that only reads requests, and not against
   * a gateway that lies about keys.
   */
  pins?: Pins | undefined;
  /**
   * Number of nodes to which each request is sealed, 1 to 16. The gateway can try that many nodes without another
   * request of the client. Default: 3.
   */
  candidates?: number;
  /**
   * True to resolve aliases of models as the gateway says. The gateway can then choose any model of the trusted nodes.
   * Default: false.
   */
  aliases?: boolean;
  /**
   * True: if the node of a chat or completion stream is lost, another candidate continues the stream. The request
   * header `x-otela-resume: 1` means the same for one request. All candidates can then read the whole stream. Default:
   * false.
   */
  resume?: boolean;
  /**
   * Seals only to nodes whose evidence this verifier accepts; nodes without evidence are skipped. docs/sealed.md lists
   * what a verifier must check.
   */
  verifier?: EvidenceVerifier | undefined;
  /** Sends the sealed requests. Default: the runtime's `fetch`. */
  fetch?: typeof globalThis.fetch | undefined;
  /** Called for each response with the node that sealed it, and again with each node that continued it. */
  onAnswer?(node: SealNode): void;
  /** Called at the end of each complete response, with the token counts that the engine reports inside it. */
  onUsage?(said: SaidUsage, answered: { node: SealNode; requestId: string | null }): void;
  /** Returns the time in milliseconds since 1970. */
  now?(): number;
}

const CANDIDATES_DEFAULT = 3;
const CANDIDATES_MAX = 16;

/** Headers of the client that nodes need. They are sealed inside the request. */
const INSIDE = ['content-type', 'accept', 'anthropic-version', 'anthropic-beta', 'openai-beta'];
/**
 * Headers that gateways need. SDKs' own headers (`x-stainless-…`, `user-agent`) are not among them, because they reveal
 * more about the client than is necessary.
 */
const OUTSIDE =
  /^(?:authorization|x-api-key|x-request-id|traceparent|tracestate|x-otela-(?!seal|model$|stream$|resume$).*)$/;
/** Headers of the gateway that SDKs act on or show. The last three announce the end of a model. */
const FROM_GATEWAY =
  /^(?:x-request-id|request-id|retry-after|retry-after-ms|x-should-retry|server-timing|x-ratelimit-.*|x-otela-.*|deprecation|sunset|link)$/;

/** Members of a body's `metadata` that gateways act on. They are therefore also sent in clear text. */
const ROUTING = /^otela_(?:trusted_providers|require|prefer)$/;
const PRINTABLE = /^[\x20-\x7e]{0,4096}$/;

const SEALABLE = new Map(ENDPOINTS.map((endpoint) => [endpoint.path, endpoint]));

/** Marks a response that no node sealed, such as an error of the gateway, which is passed on. */
export const UNAUTHENTICATED_HEADER = 'x-otela-unauthenticated';

export function sealedFetch(options: SealOptions = {}): typeof globalThis.fetch {
  const { pins, candidates = CANDIDATES_DEFAULT, fetch = globalThis.fetch, now = Date.now } = options;
  if (!Number.isInteger(candidates) || candidates < 1 || candidates > CANDIDATES_MAX)
    throw new RangeError(`candidates must be a whole number from 1 to ${CANDIDATES_MAX}`);
  const { verifier } = options;
  const judged = verifier && new VerdictCache(verifier, fetch, now);
  const known = new Candidates({ pins, count: judged === undefined ? candidates : CANDIDATES_MAX, fetch, now });
  return async (input, init) => {
    const request = new Request(input, init);
    if (request.method === 'GET' || request.method === 'HEAD') return fetch(request);
    const { base, clear, headers } = await readClear(request, options.resume ?? false);
    const choose = async (fresh: boolean) => {
      const { model, nodes } = await known.get({ base, model: clear.model, headers }, fresh);
      const asking = { base, model, headers: outside(headers) };
      return { model, nodes: judged === undefined ? nodes : await judged.among(nodes, candidates, asking) };
    };
    const send = async (fresh: boolean) => {
      // Abort only this request's wait and not the fetch of the list, because other requests may wait for the same
      // list.
      const { model, nodes } = await unlessAborted(choose(fresh), request.signal);
      const sealed = await seal(withModelName(clear, model, options.aliases ?? false), nodes, now() / 1000);
      const response = await fetch(request.url, {
        method: 'POST',
        headers: { ...outside(headers), ...sealed.headers },
        body: sealed.body,
        signal: request.signal,
        redirect: 'error',
      });
      return { sealed, response };
    };
    try {
      let { sealed, response } = await send(false);
      if (await isStale(response)) ({ sealed, response } = await send(true));
      return await opened(response, sealed, options);
    } catch (error) {
      // The gateway refused to list nodes. Its response becomes the response to this request.
      if (error instanceof Response) return unauthenticated(error);
      throw error;
    }
  };
}

/** @throws the error of `work`, or the reason of the abort as soon as `signal` aborts */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let leave = () => {};
  const aborted = new Promise<never>((_, reject) => {
    leave = () => reject(signal.reason);
    if (signal.aborted) leave();
    else signal.addEventListener('abort', leave);
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', leave);
  }
}

function outside(headers: Headers): Record<string, string> {
  return Object.fromEntries([...headers].filter(([name]) => OUTSIDE.test(name)));
}

interface ReadRequest {
  /** The gateway's URL up to `/v1`. */
  base: string;
  clear: ClearRequest;
  /** Headers of the request, with the routing members of the body added, because the gateway cannot read the body. */
  headers: Headers;
}

/** @throws SealClientError not_sealable; the request was not sent, and must not be sent in clear text */
async function readClear(request: Request, resumes: boolean): Promise<ReadRequest> {
  const { pathname, origin } = new URL(request.url);
  const at = pathname.lastIndexOf('/v1/');
  const endpoint = SEALABLE.get(pathname.slice(at));
  if (at < 0 || endpoint === undefined || request.method !== 'POST')
    throw new SealClientError('not_sealable', `${request.method} ${pathname} cannot be sealed. Nothing was sent.`);
  const body = new Uint8Array(await request.arrayBuffer());
  const type = request.headers.get('content-type') ?? '';
  const fields = endpoint.body === 'multipart' ? await formFields(body, type) : jsonFields(body);
  const { model, stream } = fields;
  if (typeof model !== 'string' || model === '')
    throw new SealClientError('not_sealable', 'The request names no model. Nothing was sent.');
  const streams = endpoint.streams && (stream === true || stream === 'true');
  const resume = resumes || request.headers.get(RESUME_HEADER) === '1';
  const headers = INSIDE.flatMap((name): [string, string][] => {
    const value = request.headers.get(name);
    return value === null ? [] : [[name, value]];
  });
  return {
    base: origin + pathname.slice(0, at),
    clear: { path: endpoint.path, model, stream: streams, resume, headers, body },
    headers: routed(request.headers, fields.metadata),
  };
}

/**
 * Copies routing from `metadata` into headers: the trusted providers, and the requirements for nodes.
 * @throws SealClientError not_sealable
 */
function routed(headers: Headers, metadata: unknown): Headers {
  const all = new Headers(headers);
  for (const [name, value] of Object.entries(isRecord(metadata) ? metadata : {})) {
    const header = `x-${name.replaceAll('_', '-')}`;
    if (!ROUTING.test(name) || value === null || all.get(header) === value) continue;
    if (typeof value !== 'string' || all.has(header) || !PRINTABLE.test(value))
      throw new SealClientError(
        'not_sealable',
        `metadata.${name} is not a string, or differs from ${header}. Nothing was sent.`,
      );
    all.set(header, value);
  }
  return all;
}

function jsonFields(body: Uint8Array): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(body));
    if (isRecord(value)) return value;
  } catch {
    // The SealClientError below is thrown.
  }
  throw new SealClientError('not_sealable', 'The request is not a JSON object. Nothing was sent.');
}

async function formFields(body: Uint8Array<ArrayBuffer>, type: string): Promise<Record<string, unknown>> {
  const form = await new Response(body, { headers: { 'content-type': type } }).formData();
  return { model: form.get('model'), stream: form.get('stream') };
}

async function isStale(response: Response): Promise<boolean> {
  if (response.status !== 409 || isSealedType(response.headers.get('content-type'))) return false;
  const text = await response.clone().text();
  return text.includes('"seal_stale"');
}

function unauthenticated(response: Response): Response {
  const headers = new Headers(response.headers);
  headers.set(UNAUTHENTICATED_HEADER, '1');
  return new Response(response.body, { status: response.status, headers });
}

async function opened(response: Response, sealed: SealedRequest, options: SealOptions): Promise<Response> {
  if (!isSealedType(response.headers.get('content-type'))) {
    if (!response.ok) return unauthenticated(response);
    await response.body?.cancel();
    throw new SealClientError('plain_answer', 'The gateway sent an unsealed response. It is not trusted.');
  }
  if (response.body === null) throw new SealClientError('cut', 'The response ended before its last chunk.');
  const opener = new AnswerOpener(response.body, sealed);
  const first = await opener.next();
  if (first.kind === 'note') return toldLate(first.text, opener);
  if (first.kind !== 'head') throw new SealClientError('not_opened', 'The response was not sealed by a node.');
  const { head, node } = first;
  options.onAnswer?.(node);
  const headers = new Headers([...response.headers].filter(([name]) => FROM_GATEWAY.test(name)));
  for (const [name, value] of head.headers) if (ANSWER_HEADERS.has(name)) headers.set(name, value);
  headers.set('x-otela-node', node.session);
  headers.set('x-otela-provider', node.provider);
  headers.set('x-otela-sealed', node.mode);
  let last = node;
  const requestId = response.headers.get('x-request-id');
  const events: BodyEvents = {
    reader: options.onUsage && new UsageReader(),
    continued: (next) => {
      last = next;
      options.onAnswer?.(next);
    },
    said: (usage) => options.onUsage?.(usage, { node: last, requestId }),
  };
  const empty = head.status === 204 || head.status === 205 || head.status === 304;
  return new Response(empty ? null : bodyOf(opener, events), { status: head.status, headers });
}

/** Passes on an error that the gateway sent after the head of its response and before any node's part. */
async function toldLate(text: string, opener: AnswerOpener): Promise<Response> {
  await opener.cancel();
  const headers = { 'content-type': 'application/json', [UNAUTHENTICATED_HEADER]: '1' };
  return new Response(text, { status: 502, headers });
}

interface BodyEvents {
  /** Undefined if the caller does not ask for usage. */
  reader: UsageReader | undefined;
  continued(node: SealNode): void;
  said(usage: SaidUsage): void;
}

function bodyOf(opener: AnswerOpener, { reader, continued, said }: BodyEvents): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        let next = await opener.next();
        for (; next.kind === 'continued'; next = await opener.next()) continued(next.node);
        if (next.kind === 'data') {
          reader?.push(next.bytes);
          controller.enqueue(next.bytes);
        } else if (next.kind === 'end') {
          if (reader !== undefined) said(reader.said);
          controller.close();
        } else throw brokenBy(next);
      },
      cancel: (reason) => opener.cancel(reason),
    },
    { highWaterMark: 0 },
  );
}

function brokenBy(next: OpenedPart): SealClientError {
  if (next.kind !== 'note') return new SealClientError('not_opened', 'The response was not sealed by a node.');
  const said = `The gateway says (no node signed this, so it may be false): ${next.text.slice(0, 500)}`;
  return new SealClientError('gateway', said);
}
