/**
 * Admits an agent. It sends a new key and its join token to a gateway, which answers with a ticket for that key. With
 * the ticket the agent connects to all gateways. The agent tries until a gateway admits it, or until all of them
 * refuse.
 */
import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';
import { type AgentFailureDetection, agentMembershipSchema } from '../../shared/gossip/index.ts';
import { fromBase64url, toBase64url } from '../../shared/lattice/base64url.ts';
import { KEY_BYTES, type Signer } from '../../shared/lattice/crypto-interface.ts';
import { sessionSchema } from '../../shared/lattice/node-record.ts';
import { openTicket, TICKET_MAX_BYTES, type Ticket } from '../../shared/lattice/ticket.ts';
import { attestationMessage } from '../../shared/release/release-manifest.ts';
import { INSTITUTION_PATTERN } from '../../shared/routing/trusted-providers.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { Backoff } from '../../shared/timing/backoff.ts';
import { PROTOCOL_VERSION } from '../../shared/wire/protocol-constants.ts';
import { AGENT_VERSION } from '../host/agent-version.ts';
import { nodeCrypto } from '../host/node-crypto.ts';
import type { OwnRelease } from '../host/own-release.ts';
import { gatewayTimeout, waitClock } from '../wait-clock.ts';
import { errorMessageOf, isRefusal, postToGateway } from './gateway-request.ts';
import type { TunnelRefusal } from './tunnel-types.ts';

export interface GatewayAdmission {
  ticket: Ticket;
  issuers: { name: string; root: Uint8Array }[];
  /** Other gateways that the session may serve. */
  gateways: OtherGateway[];
  /** The mesh's intervals and timeouts that the gateway's operator set. */
  membership: AgentFailureDetection;
}

/** A gateway that the agent's institution named. */
export interface OtherGateway {
  url: URL;
  /**
   * True if this gateway belongs to the agent's institution. False if it belongs to a peer institution, which must not
   * see the join token.
   */
  own: boolean;
  /** Name of the peer institution to which this gateway belongs. Absent: its name is unknown, or it is our own. */
  peer?: string | undefined;
}

export interface AdmissionOptions {
  /** Gateways to which the join token is sent. */
  gateways: readonly URL[];
  token: string;
  /**
   * Issuer of the first admission. A ticket of another issuer is refused, because the other issuer's institution would
   * control the node.
   */
  issuer?: string | undefined;
  cluster: string | undefined;
  /** Key of the new session. The ticket is valid only for this key. */
  key: Signer;
  jobEndsAt: Date | undefined;
  /** The release from which this program was installed; undefined: none. A gateway may require a signed release. */
  release?: OwnRelease | undefined;
  /** Proxies of known peers, each as another path to a gateway. Used if no gateway answers directly. */
  peerProxies?: readonly ((gateway: URL) => URL | undefined)[];
  /** A proxy for all requests, if the node has no egress. */
  proxy?: ((gateway: URL) => URL | undefined) | undefined;
  env: NodeJS.ProcessEnv;
  signal: AbortSignal;
  log(line: string): void;
  /** A random number x with 0 ≤ x < 1. */
  random(): number;
}

/** Every gateway refuses, and another try would get the same answer. */
export class AdmissionRefusedError extends Error {
  readonly code = 'refused';
  override readonly name = 'RefusedError';
  readonly refusal: TunnelRefusal;

  constructor(refusal: TunnelRefusal) {
    super(`${refusal.status} ${refusal.message}`);
    this.refusal = refusal;
  }
}

/** RFC 6585 §3: the gateway asks the agent to attest its program. */
const CHALLENGED = 428;
const challengeSchema = z.object({ challenge: z.string().min(1).max(512) });

/**
 * If a gateway has not answered after this time, the next gateway is tried in parallel. A network that drops packets
 * sends no error.
 */
const NEXT_AFTER_MS = 1000;

/**
 * Waits between tries. They are short, because GPUs are idle meanwhile, and random, because a thousand agents may start
 * together.
 */
const BACKOFF = { minMs: 250, maxMs: 10_000 };
const BACKOFF_SPREAD = 0.5;
/** Maximum wait that a gateway may ask for. */
const RETRY_AFTER_MAX_MS = 60_000;

/** Maximum number of gateways that an agent serves. Each costs a socket and a heartbeat. */
export const GATEWAYS_MAX = 16;

/** A gateway of another version may send settings that this agent does not understand. The defaults then apply. */
export const membershipHintSchema = agentMembershipSchema
  .catch(() => agentMembershipSchema.parse({}))
  .default(() => agentMembershipSchema.parse({}));

/** An older gateway does not send `own`. The gateways that it names then count as gateways of another institution. */
export const otherGatewaySchema = z.object({
  url: z.url({ protocol: /^https?$/ }),
  own: z.boolean().default(false),
  peer: z.string().regex(INSTITUTION_PATTERN).optional().catch(undefined),
});

const answerSchema = z.object({
  ticket: z.string(),
  session: sessionSchema,
  issuers: z.array(z.object({ name: z.string().min(1).max(63), root: z.string() })).max(256),
  gateways: z.array(otherGatewaySchema).max(64).default([]),
  membership: membershipHintSchema,
});

/** Result of one try at one gateway. */
type Outcome =
  | { kind: 'admitted'; admission: GatewayAdmission }
  | { kind: 'refused'; refusal: TunnelRefusal }
  | { kind: 'later'; why: string; afterMs: number }
  /** The gateway did not answer. */
  | { kind: 'away'; why: string };

/** Resolves when admitted. Rejects with AdmissionRefusedError, or with the signal's reason. */
export async function requestAdmission(options: AdmissionOptions): Promise<GatewayAdmission> {
  const { gateways, signal, log, random } = options;
  const refused = new Map<URL, TunnelRefusal>();
  const backoff = new Backoff(BACKOFF, random, BACKOFF_SPREAD);
  for (;;) {
    const outcomes = await round(options, refused);
    const found = outcomes.find((outcome) => outcome.kind === 'admitted');
    if (found) return found.admission;
    signal.throwIfAborted();
    const last = [...refused.values()].at(-1);
    if (last !== undefined && gateways.every((gateway) => refused.has(gateway))) throw new AdmissionRefusedError(last);
    const asked = Math.max(0, ...outcomes.map((outcome) => (outcome.kind === 'later' ? outcome.afterMs : 0)));
    const pause = Math.max(backoff.next(), asked * (1 + 0.2 * random()));
    const why = outcomes.flatMap((outcome) => ('why' in outcome ? outcome.why : []));
    log(`not admitted yet: ${[...new Set(why)].join('; ')}; trying again in ${Math.round(pause)} ms`);
    await delay(pause, undefined, { signal });
  }
}

/**
 * Tries every gateway once, each a moment after the previous one. The first ticket ends the round. If no gateway
 * answers, tries the detours.
 */
async function round(options: AdmissionOptions, refused: Map<URL, TunnelRefusal>): Promise<Outcome[]> {
  const open = options.gateways.filter((gateway) => !refused.has(gateway));
  const ways: Way[] = open.map((gateway) => ({ gateway, proxy: options.proxy?.(gateway) }));
  const direct = await race(ways, options, refused);
  if (direct.some(({ kind }) => kind !== 'away')) return direct;
  // A peer that relays a detour must not see the token. So only gateways with TLS are asked through detours.
  const peerProxies = (options.peerProxies ?? []).flatMap((proxyOf) =>
    open.flatMap((gateway) => {
      const proxy = gateway.protocol === 'https:' ? proxyOf(gateway) : undefined;
      return proxy === undefined ? [] : [{ gateway, proxy }];
    }),
  );
  const around = await race(peerProxies, options, refused);
  return [...direct, ...around];
}

interface Way {
  gateway: URL;
  proxy: URL | undefined;
}

async function race(
  ways: readonly Way[],
  options: AdmissionOptions,
  refused: Map<URL, TunnelRefusal>,
): Promise<Outcome[]> {
  const won = new AbortController();
  const signal = AbortSignal.any([options.signal, won.signal]);
  const outcomes: Outcome[] = [];
  let before: Promise<unknown> = Promise.resolve();
  const tries = ways.map((way) => {
    const turn = before;
    const tried = turn.then(async () => {
      if (signal.aborted) return;
      const outcome = await ask(way, options, signal);
      if (outcome.kind === 'refused') {
        options.log(
          `gateway ${way.gateway.host} refuses this agent: ${outcome.refusal.status} ${outcome.refusal.message}`,
        );
        refused.set(way.gateway, outcome.refusal);
      }
      outcomes.push(outcome);
      if (outcome.kind === 'admitted') won.abort();
    });
    // The next try starts NEXT_AFTER_MS after this one, or as soon as this one has failed.
    before = turn.then(() => Promise.race([tried, pause(NEXT_AFTER_MS, signal)]));
    return tried;
  });
  await Promise.all(tries);
  return outcomes;
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => {});
}

async function ask(way: Way, options: AdmissionOptions, signal: AbortSignal): Promise<Outcome> {
  const { gateway } = way;
  try {
    const first = await post(way, options, {}, signal);
    const challenge = first.status === CHALLENGED ? challengeOf(first.text) : undefined;
    const answer = challenge === undefined ? first : await post(way, options, attest(challenge, options), signal);
    if (answer.status === 200) {
      return { kind: 'admitted', admission: readAdmission(answer.text, options, gateway) };
    }
    const message = errorMessageOf(answer);
    if (isRefusal(answer)) return { kind: 'refused', refusal: { status: answer.status, message } };
    const afterMs = Math.min(RETRY_AFTER_MAX_MS, 1000 * (Number(answer.retryAfter) || 0));
    return { kind: 'later', why: `${gateway.host}: ${answer.status} ${message}`, afterMs };
  } catch (error) {
    return { kind: 'away', why: `${gateway.host}: ${errorText(error)}` };
  }
}

function post({ gateway, proxy }: Way, options: AdmissionOptions, more: object, signal: AbortSignal) {
  const { token, cluster, key, jobEndsAt, release, env } = options;
  return waitClock.call(gatewayTimeout, (late) =>
    postToGateway({
      gateway,
      path: '/agent/admit',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        protocol: PROTOCOL_VERSION,
        version: AGENT_VERSION,
        public_key: toBase64url(key.publicKey),
        ...(cluster === undefined ? {} : { cluster }),
        ...(jobEndsAt === undefined ? {} : { job_ends_at: jobEndsAt.toISOString() }),
        ...(release === undefined ? {} : { release: { manifest: release.manifest, signature: release.signature } }),
        ...more,
      }),
      env,
      proxy,
      signal: AbortSignal.any([signal, late]),
    }),
  );
}

function challengeOf(text: string): string | undefined {
  return challengeSchema.safeParse(tryParseJson(text)).data?.challenge;
}

/**
 * Signs a statement about this program's release with the session's key. It is valid only for this session and this
 * challenge.
 */
function attest(challenge: string, { release, key }: AdmissionOptions): object {
  if (release === undefined) return {};
  const { manifest, digest } = release;
  const signature = key.sign(attestationMessage(challenge, manifest, digest, nodeCrypto));
  return { attestation: { challenge, digest, signature: toBase64url(signature) } };
}

/** @throws Error if the answer is not a valid ticket for this key, for example a proxy's page */
function readAdmission(text: string, { key, issuer }: AdmissionOptions, gateway: URL): GatewayAdmission {
  const parsed = answerSchema.safeParse(tryParseJson(text));
  if (!parsed.success) throw new Error('its response is not an admission');
  const { ticket: encoded, session, issuers, gateways, membership } = parsed.data;
  const bytes = fromBase64url(encoded, TICKET_MAX_BYTES);
  if (bytes === undefined) throw new Error('its ticket is not base64url');
  const ticket = openTicket(bytes, nodeCrypto);
  if (ticket.session !== session || Buffer.compare(ticket.sessionKey, key.publicKey) !== 0)
    throw new Error('its ticket is for another session');
  if (issuer !== undefined && ticket.issuer !== issuer)
    throw new Error('its ticket is from another institution than its first ticket');
  const listed = issuers.flatMap(({ name, root }) => {
    const raw = fromBase64url(root, KEY_BYTES);
    return raw?.length === KEY_BYTES ? [{ name, root: raw }] : [];
  });
  return { ticket, issuers: listed, gateways: selectOtherGateways(gateways, gateway), membership };
}

/** The gateways that gateway `by` names. If `by` was asked over TLS, those without TLS are left out. */
export function selectOtherGateways(gateways: readonly z.infer<typeof otherGatewaySchema>[], by: URL): OtherGateway[] {
  return gateways
    .map(({ url, own, peer }) => ({ url: new URL(url), own, ...(!own && peer !== undefined && { peer }) }))
    .filter(({ url }) => (url.protocol === 'https:' || by.protocol === 'http:') && !url.username && !url.search)
    .slice(0, GATEWAYS_MAX);
}
