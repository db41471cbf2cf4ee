/** Nodes to which a request may be sealed. The gateway lists them, and the pins decide which of them are trusted. */
import { fromBase64url, toBase64url } from '../../shared/lattice/base64url.ts';
import { KID_BYTES, LABEL_KID, SEAL_KEY_BYTES } from '../../shared/seal/hpke-suite.ts';
import { isRecord } from '../../shared/seal/is-record.ts';
import {
  DELEGATE_LIFE_MAX_S,
  delegationMessage,
  localProviderName,
  readVouch,
  type Vouch,
  vouchMessage,
} from '../../shared/seal/key-vouch.ts';
import { concatBytes } from '../../shared/seal/portable-bytes.ts';
import { readSealCandidates, type SealCandidate } from '../../shared/seal/seal-candidates.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { SealClientError } from './seal-client-error.ts';

/**
 * `pinned`: the provider's root key vouches for the node's key. `registry`: only the gateway claims that the key
 * belongs to the node.
 */
export type SealMode = 'pinned' | 'registry';

export interface SealNode {
  session: string;
  provider: string;
  mode: SealMode;
  kid: string;
  /** The raw X25519 key. */
  key: Uint8Array<ArrayBuffer>;
  /** End of the key's validity, in seconds since 1970. */
  until: number;
  /** Kinds of evidence that the node claims to have: tdx, snp, nvidia. Absent: none. */
  evidence?: readonly string[] | undefined;
}

/** Root keys in base64url, by provider. */
export type Pins = Readonly<Record<string, string>>;

/** How long a list is reused: as long as the route's cache-control says. */
const FRESH_MS = 30_000;
/** Maximum number of cached lists of one client, by model and headers. The oldest is dropped. */
const LISTS_MAX = 64;
const ANSWER_MAX_BYTES = 64 * 1024;
const DISCOVERY_MS = 10_000;

interface CandidatesOptions {
  pins: Pins | undefined;
  /** Number of nodes to which a request is sealed. */
  count: number;
  fetch: typeof globalThis.fetch;
  now(): number;
}

interface CandidateQuery {
  /** The gateway's URL up to `/v1`. */
  base: string;
  model: string;
  /** Headers of the request with the key, the trusted providers and the session. */
  headers: Headers;
}

interface SealList {
  /** The model's canonical name according to the gateway: the requested name may be an alias. */
  model: string;
  nodes: SealNode[];
}

interface Listed {
  at: number;
  list: Promise<SealList>;
}

export class Candidates {
  readonly #options: CandidatesOptions;
  readonly #lists = new Map<string, Listed>();

  /** @throws RangeError if a pin is not a key, because no node could ever match it */
  constructor(options: CandidatesOptions) {
    for (const [provider, pin] of Object.entries(options.pins ?? {}))
      if (fromBase64url(pin, SEAL_KEY_BYTES)?.length !== SEAL_KEY_BYTES)
        throw new RangeError(`pins: '${provider}' has no key in the format of otela-agent vouch`);
    this.#options = options;
  }

  /**
   * Returns nodes for a request.
   * @throws SealClientError no_candidate, no_discovery; if the gateway refuses, its Response, which the caller passes
   * on unchanged
   */
  get(asked: CandidateQuery, fresh: boolean): Promise<SealList> {
    const now = this.#options.now();
    const name = JSON.stringify([asked.base, asked.model, ...WITH.map((header) => asked.headers.get(header))]);
    const known = this.#lists.get(name);
    if (!fresh && known !== undefined && now - known.at < FRESH_MS) return known.list;
    const list = this.#ask(asked);
    this.#lists.delete(name);
    this.#lists.set(name, { at: now, list });
    const oldest = this.#lists.keys().next().value;
    if (this.#lists.size > LISTS_MAX && oldest !== undefined) this.#lists.delete(oldest);
    // Failures are not cached.
    list.catch(() => this.#lists.get(name)?.list === list && this.#lists.delete(name));
    return list;
  }

  async #ask({ base, model: asked, headers }: CandidateQuery): Promise<SealList> {
    const { fetch, count, now, pins } = this.#options;
    const own = new Headers();
    for (const name of WITH) {
      const value = headers.get(name);
      if (value !== null) own.set(name, value);
    }
    const signal = AbortSignal.timeout(DISCOVERY_MS);
    const query = new URLSearchParams({ model: asked });
    // Name the pinned providers in the request. The gateway lists at most sixteen nodes, and without this they could
    // all be nodes of other providers.
    for (const provider of Object.keys(pins ?? {})) query.append('provider', provider);
    const url = `${base}/v1/otela/seal?${query}`;
    const response = await fetch(url, { headers: own, signal, redirect: 'error' });
    if (!response.ok) throw await refusalOf(response);
    const answer = tryParseJson(await textWithin(response));
    const listed = readSealCandidates(answer);
    const model = isRecord(answer) ? answer.model : undefined;
    if (listed === undefined || typeof model !== 'string')
      throw new SealClientError('no_discovery', 'The gateway returned no nodes to seal to.');
    const believed = await Promise.all(listed.map((one) => verifyCandidate(one, pins, now() / 1000)));
    const nodes = believed.filter((node) => node !== undefined).slice(0, count);
    if (nodes.length === 0) throw new SealClientError('no_candidate', whyNone(model, listed, pins));
    return { model, nodes };
  }
}

/** Headers that decide to which nodes a request may be sent, and in which order. */
const WITH = [
  'authorization',
  'x-api-key',
  'x-otela-trusted-providers',
  'x-otela-require',
  'x-otela-prefer',
  'x-otela-session',
];

/**
 * A gateway that does not know the route is older than sealed requests. Any other refusal is passed on to the caller.
 */
async function refusalOf(response: Response): Promise<SealClientError | Response> {
  if (response.status !== 404) return response;
  const text = await textWithin(response);
  return text.includes('model_not_found')
    ? Response.json(tryParseJson(text), { status: response.status })
    : new SealClientError('no_discovery', 'This gateway does not support sealed requests. Nothing was sent.');
}

async function textWithin({ body }: Response): Promise<string> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for (const reader = body?.getReader(); reader !== undefined; ) {
    const { done, value } = await reader.read();
    if (done) break;
    bytes += value.length;
    if (bytes > ANSWER_MAX_BYTES) {
      await reader.cancel();
      throw new SealClientError('no_discovery', 'The list of nodes is too long.');
    }
    pieces.push(value);
  }
  return new TextDecoder().decode(concatBytes(...pieces));
}

function whyNone(model: string, listed: readonly SealCandidate[], pins: Pins | undefined): string {
  if (listed.length === 0) return `No node that serves '${model}' can decrypt sealed requests.`;
  const providers = [...new Set(listed.map(({ provider }) => provider))].join(', ');
  const pinned = Object.keys(pins ?? {}).join(', ');
  return `No node that serves '${model}' has a key signed by a pinned provider (${pinned}); the nodes belong to ${providers}.`;
}

/** Undefined if the node is not trusted. */
export async function verifyCandidate(
  { session, provider, key: text, kid, until, vouch, evidence }: SealCandidate,
  pins: Pins | undefined,
  now: number,
): Promise<SealNode | undefined> {
  const key = fromBase64url(text, SEAL_KEY_BYTES);
  if (key?.length !== SEAL_KEY_BYTES || until <= now || kid !== (await kidOf(key))) return undefined;
  const mode: SealMode = pins === undefined ? 'registry' : 'pinned';
  const node: SealNode = { session, provider, mode, kid, key: new Uint8Array(key), until, evidence };
  if (pins === undefined) return node;
  const pin = fromBase64url(Object.hasOwn(pins, provider) ? (pins[provider] ?? '') : '', SEAL_KEY_BYTES);
  if (pin?.length !== SEAL_KEY_BYTES || vouch === undefined) return undefined;
  return (await isVouched(node, vouch, pin, now)) ? node : undefined;
}

async function isVouched({ session, provider, key }: SealNode, text: string, pin: Uint8Array, now: number) {
  let vouch: Vouch;
  try {
    vouch = readVouch(text);
  } catch {
    return false;
  }
  const { delegate, notAfter, signature, until, keySignature } = vouch;
  if (now >= until || now >= notAfter || notAfter - now > DELEGATE_LIFE_MAX_S) return false;
  const named = { provider: localProviderName(provider), session, encryptionKey: key, until };
  const [delegated, vouched] = await Promise.all([
    verifies(pin, delegationMessage(named.provider, vouch), signature),
    verifies(delegate, vouchMessage(named), keySignature),
  ]);
  return delegated && vouched;
}

async function verifies(key: Uint8Array, message: Uint8Array<ArrayBuffer>, signature: Uint8Array): Promise<boolean> {
  const { subtle } = globalThis.crypto;
  try {
    const imported = await subtle.importKey('raw', new Uint8Array(key), 'Ed25519', false, ['verify']);
    return await subtle.verify('Ed25519', imported, new Uint8Array(signature), message);
  } catch {
    return false;
  }
}

async function kidOf(key: Uint8Array): Promise<string> {
  const digest = await globalThis.crypto.subtle.digest('SHA-256', concatBytes(LABEL_KID, key));
  return toBase64url(new Uint8Array(digest, 0, KID_BYTES));
}
