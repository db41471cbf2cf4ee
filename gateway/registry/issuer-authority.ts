import * as z from 'zod';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import { LOCAL_ISSUER } from '../../shared/routing/trusted-providers.ts';
import type { Env } from '../env.ts';
import { createIssuer, GatewayIssuer, issuerOf, renewIfNeeded } from '../issuer/issuer.ts';
import { writeIfPossible } from '../platform/storage/storage-health.ts';
import type { ListedIssuer } from './listed-issuers.ts';
import type { RegistryMeta } from './registry-meta.ts';

const OWN_KEY = 'issuer';
const PEERS = 'peers';

const ownSchema = z.object({ root: z.string(), gateway: z.object({ key: z.string(), certificate: z.string() }) });
const peersSchema = z.array(
  z.object({ name: z.string(), id: z.string(), root: z.string(), url: z.string().optional() }),
);

/**
 * The issuers whose tickets are accepted: our own, with the key from the environment or a key created here, and those
 * of the listed peer institutions.
 */
export class IssuerAuthority {
  readonly issuer: GatewayIssuer;
  readonly source: 'environment' | 'own';
  readonly #meta: RegistryMeta;
  #names = new Map<string, string>();
  #listed: ListedIssuer[] = [];

  /**
   * @throws IssuerError if the environment's key is malformed. A new key would give the registry another identity,
   * which would be worse than no registry
   */
  constructor(env: Env, meta: RegistryMeta, nowS: number) {
    this.#meta = meta;
    const given = issuerOf(env);
    this.issuer = given ?? ownIssuer(meta, nowS);
    this.source = given === undefined ? 'own' : 'environment';
    this.#set(peersSchema.parse(JSON.parse(meta.get(PEERS) ?? '[]')));
  }

  /** All accepted issuers; our own is first. */
  get listed(): ListedIssuer[] {
    return this.#listed;
  }

  accepts(issuer: string): boolean {
    return this.#names.has(issuer);
  }

  nameOf(issuer: string): string | undefined {
    return this.#names.get(issuer);
  }

  /** Sets the operator's current list of peer institutions. @returns whether it changed */
  list(peers: readonly ListedIssuer[]): boolean {
    const text = JSON.stringify(peers);
    if (text === (this.#meta.get(PEERS) ?? '[]')) return false;
    // The list is also stored here, so that nodes of peer institutions stay while D1 is unavailable.
    writeIfPossible(() => this.#meta.set(PEERS, text));
    this.#set(peers);
    return true;
  }

  #set(peers: readonly ListedIssuer[]): void {
    const { issuer, certificate } = this.issuer;
    const own = { name: LOCAL_ISSUER, id: issuer, root: toBase64url(certificate.root) };
    this.#listed = [own, ...peers.filter(({ id }) => id !== issuer)];
    this.#names = new Map(this.#listed.map(({ id, name }) => [id, name]));
  }
}

/** Returns our own issuer. If the environment has no key, the object creates an issuer and stores it. */
function ownIssuer(meta: RegistryMeta, nowS: number): GatewayIssuer {
  const stored = meta.get(OWN_KEY);
  const made = stored === undefined ? createIssuer(nowS) : ownSchema.parse(JSON.parse(stored));
  const own = { ...made, gateway: renewIfNeeded(made.root, made.gateway, nowS) };
  const text = JSON.stringify(own);
  if (text !== stored) meta.set(OWN_KEY, text);
  return new GatewayIssuer(own.gateway);
}
