/**
 * The gateway's issuer: it signs tickets, evictions, watermarks and orders. The root key is not here, unless the
 * gateway had to create the issuer itself.
 */
import {
  type DeploymentRequest,
  ORDER_LIFE_S,
  ORDER_NONCE_BYTES,
  signOrder,
} from '../../shared/deployment/deployment-order.ts';
import { fromBase64url, toBase64url } from '../../shared/lattice/base64url.ts';
import { KEY_BYTES, type Signer } from '../../shared/lattice/crypto-interface.ts';
import { signEviction } from '../../shared/lattice/eviction.ts';
import {
  CERTIFICATE_BYTES,
  type Certificate,
  issuerId,
  keyName,
  openCertificate,
  signCertificate,
} from '../../shared/lattice/gateway-certificate.ts';
import {
  openRevocation,
  REVOCATION_BYTES,
  type Revocation,
  signGcWatermark,
} from '../../shared/lattice/gateway-key-statements.ts';
import type { EntryUpdate, Update } from '../../shared/lattice/registry-update.ts';
import { signTicket, TICKET_LIFE_MAX_S, type Ticket } from '../../shared/lattice/ticket.ts';
import { type SignedHead, type StatementHead, signHead } from '../../shared/usage/signed-statement.ts';
import { newSeed, workerdCrypto, workerdSigner } from './ed25519.ts';

/** A gateway's key and its certificate in base64url: the form in the environment, in files and in storage. */
export interface GatewayKey {
  /** The private key: 32 secret bytes. */
  key: string;
  certificate: string;
}

/**
 * Lifetime of a gateway's certificate: longer than an operator runs a gateway without an update. Each start of a
 * self-hosted gateway renews it.
 */
const CERTIFICATE_LIFE_S = 400 * 86_400;
/**
 * A certificate's validity begins this long before its signature, so that it is also valid for a machine with a slow
 * clock.
 */
const CERTIFICATE_SLACK_S = 86_400;
/** Lifetime of a ticket if the agent reports no end of its job. */
const TICKET_LIFE_S = 7 * 86_400;
/**
 * A ticket expires this many seconds after the end of the agent's job, so that it is still valid in the job's last
 * minutes if clocks disagree.
 */
const AFTER_JOB_S = 3600;
/** Maximum time for which a replica may be disconnected and still learn of every session that ended meanwhile. */
export const PARTITION_WINDOW_S = 86_400;

interface Newcomer {
  sessionKey: Uint8Array;
  provider: string;
  cluster: string;
  /** End of the agent's job in seconds since 1970, as the agent reported it. Undefined: unknown. */
  jobEndsAt?: number | undefined;
}

export interface IssuerEnvironment {
  /**
   * This gateway's issuer: 32 secret bytes, and the certificate signed by the root key, base64url. Absent: the gateway
   * creates an issuer.
   */
  OTELA_GATEWAY_KEY?: string;
  OTELA_GATEWAY_CERT?: string;
  /**
   * Former keys as `key:certificate`, comma-separated. They only sign evictions and watermarks of the sessions that
   * they admitted.
   */
  OTELA_RETIRED_KEYS?: string;
  /** Revocations signed by the root, base64url, comma-separated. */
  OTELA_REVOCATIONS?: string;
}

/** The issuer in the environment cannot be used. The message is for the operator. */
export class IssuerError extends Error {}

export class GatewayIssuer {
  readonly issuer: string;
  readonly certificate: Certificate;
  readonly signer: Signer;
  /** This gateway's id as a gossip peer. */
  readonly id: string;
  /** The current key, then former keys, which only sign evictions and watermarks of the sessions that they admitted. */
  readonly #keys: readonly { certificate: Certificate; signer: Signer }[];
  /** The root's revocations of this issuer's keys. The registry merges them at each start. */
  readonly revocations: readonly Update[];
  /** True if this gateway's key or the root is revoked. Then `ticket` and `order` throw. */
  readonly #revoked: boolean;

  /** @throws IssuerError if a key or a certificate is invalid */
  constructor(own: GatewayKey, former: { retired?: readonly GatewayKey[]; revocations?: readonly string[] } = {}) {
    const { certificate, signer } = readKey(own);
    this.certificate = certificate;
    this.signer = signer;
    this.issuer = issuerId(certificate.root, workerdCrypto);
    this.id = `gw:${certificate.keyName}`;
    this.#keys = [this, ...(former.retired ?? []).map(readKey)];
    const revocations = (former.revocations ?? []).map((text) => readRevocation(text, this.issuer));
    this.revocations = revocations.map(({ bytes }) => ({ kind: 'revocation', revocation: bytes }));
    const gone = new Set(revocations.map((revocation) => revocation.keyName));
    this.#revoked = gone.has(certificate.keyName) || gone.has(keyName(certificate.root));
  }

  /**
   * Signs a new session's ticket. `watermark`: the key's newest watermark, which may be in the future if the clock was
   * once wrong. The ticket expires after it, because replicas drop sessions that end before the watermark.
   * @throws IssuerError if this gateway's key or the root is revoked
   */
  ticket(newcomer: Newcomer, nowS: number, watermark = 0): Uint8Array {
    if (this.#revoked)
      throw new IssuerError(
        "This gateway's key was revoked, so its tickets would not be valid: give the gateway a new key.",
      );
    const { sessionKey, provider, cluster, jobEndsAt } = newcomer;
    const wanted = jobEndsAt === undefined ? nowS + TICKET_LIFE_S : Math.max(jobEndsAt, nowS) + AFTER_JOB_S;
    const expires = Math.min(Math.max(wanted, watermark + AFTER_JOB_S), nowS + TICKET_LIFE_MAX_S);
    const fields = { certificate: this.certificate.bytes, sessionKey, birth: nowS, expires, provider, cluster };
    return signTicket(fields, this.signer, workerdCrypto);
  }

  /**
   * Signs the eviction of a session that one of this gateway's keys admitted, including former keys. Undefined: none of
   * them admitted it. `reason`: an id such as `silent` or `operator`.
   */
  eviction(ticket: Pick<Ticket, 'session' | 'certificate'>, reason: string): EntryUpdate | undefined {
    const own = this.#keys.find(({ certificate }) => certificate.keyName === ticket.certificate.keyName);
    if (own === undefined) return undefined;
    return { kind: 'entry', eviction: signEviction({ session: ticket.session, reason }, own.signer, workerdCrypto) };
  }

  /**
   * Signs an order to one of the institution's sessions. The order is valid for two minutes.
   * @throws IssuerError if this gateway's key or the root is revoked
   */
  order(session: string, request: DeploymentRequest, nowS: number): Uint8Array {
    if (this.#revoked)
      throw new IssuerError(
        "This gateway's key was revoked, so agents would refuse its orders: give the gateway a new key.",
      );
    const nonce = newSeed().subarray(0, ORDER_NONCE_BYTES);
    const fields = {
      certificate: this.certificate.bytes,
      session,
      nonce,
      notAfter: nowS + ORDER_LIFE_S,
      wish: request,
    };
    return signOrder(fields, this.signer);
  }

  /**
   * Signs a statement of usage for a peer institution.
   * @throws IssuerError if this gateway's key or the root is revoked
   */
  statement(statement: StatementHead): SignedHead {
    if (this.#revoked)
      throw new IssuerError(
        "This gateway's key was revoked, so its statements would not be valid: give the gateway a new key.",
      );
    return signHead(statement, this.certificate, this.signer);
  }

  /**
   * Signs watermarks, which make replicas drop the sessions that ended before the partition window. Call this every
   * hour.
   */
  watermarks(nowS: number): Update[] {
    return this.#keys.map(({ certificate, signer }) => {
      const at = Math.min(nowS - PARTITION_WINDOW_S, certificate.notAfter + TICKET_LIFE_MAX_S);
      return { kind: 'floor', floor: signGcWatermark({ certificate: certificate.bytes, at }, signer) };
    });
  }
}

/** Returns the issuer of the environment. Undefined: the environment has none. @throws IssuerError */
export function issuerOf(env: IssuerEnvironment): GatewayIssuer | undefined {
  const { OTELA_GATEWAY_KEY: key, OTELA_GATEWAY_CERT: certificate } = env;
  if (key === undefined && certificate === undefined) return undefined;
  if (key === undefined || certificate === undefined)
    throw new IssuerError('OTELA_GATEWAY_KEY and OTELA_GATEWAY_CERT must be set together.');
  const retired = listed(env.OTELA_RETIRED_KEYS).map((text) => {
    const [former = '', formerCertificate = ''] = text.split(':');
    return { key: former, certificate: formerCertificate };
  });
  return new GatewayIssuer({ key, certificate }, { retired, revocations: listed(env.OTELA_REVOCATIONS) });
}

function listed(text = ''): string[] {
  return text.split(/[\s,]+/).filter((part) => part !== '');
}

/** Creates a root key and a gateway key, for a gateway without an issuer, which keeps them in its storage. */
export function createIssuer(nowS: number): { root: string; gateway: GatewayKey } {
  const root = newSeed();
  const key = newSeed();
  return { root: toBase64url(root), gateway: certifyKey(toBase64url(root), toBase64url(key), nowS) };
}

/** Signs a certificate for `key` with `root`; both are secret and base64url. */
export function certifyKey(root: string, key: string, nowS: number): GatewayKey {
  const signer = workerdSigner(secret(key));
  const dates = { notBefore: nowS - CERTIFICATE_SLACK_S, notAfter: nowS + CERTIFICATE_LIFE_S };
  const certificate = signCertificate({ key: signer.publicKey, ...dates }, workerdSigner(secret(root)));
  return { key, certificate: toBase64url(certificate) };
}

/**
 * If a certificate is valid for less than this time, the next start renews it, for the same key, so that sessions are
 * not affected.
 */
const RENEW_S = 0.75 * CERTIFICATE_LIFE_S;

/** Returns `gateway` if its certificate is valid for long enough, otherwise the key with a new certificate. */
export function renewIfNeeded(root: string, gateway: GatewayKey, nowS: number): GatewayKey {
  const left = readKey(gateway).certificate.notAfter - nowS;
  return left > RENEW_S ? gateway : certifyKey(root, gateway.key, nowS);
}

function readKey(own: GatewayKey): { certificate: Certificate; signer: Signer } {
  const bytes = fromBase64url(own.certificate.trim(), CERTIFICATE_BYTES);
  if (bytes === undefined) throw new IssuerError('The gateway certificate is not base64url.');
  const signer = workerdSigner(secret(own.key));
  let certificate: Certificate;
  try {
    certificate = openCertificate(bytes, workerdCrypto);
  } catch (cause) {
    throw new IssuerError('The gateway certificate is damaged.', { cause });
  }
  if (!signer.publicKey.every((byte, i) => byte === certificate.key[i]))
    throw new IssuerError('The gateway certificate does not belong to the key of the gateway.');
  return { certificate, signer };
}

function secret(text: string): Uint8Array {
  const bytes = fromBase64url(text.trim(), KEY_BYTES);
  if (bytes?.length !== KEY_BYTES) throw new IssuerError('A key must be 32 bytes in base64url.');
  return bytes;
}

function readRevocation(text: string, issuer: string): Revocation {
  const bytes = fromBase64url(text, REVOCATION_BYTES);
  let revocation: Revocation;
  try {
    revocation = openRevocation(bytes ?? new Uint8Array(), workerdCrypto);
  } catch (cause) {
    throw new IssuerError('A revocation is damaged.', { cause });
  }
  if (issuerId(revocation.root, workerdCrypto) !== issuer)
    throw new IssuerError('A revocation belongs to another issuer.');
  return revocation;
}
