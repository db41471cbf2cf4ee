/** An identity provider that the test controls: its responses replace those of fetch. */
import { exportJWK, generateKeyPair, type JWK, type JWTHeaderParameters, SignJWT } from 'jose';
import { vi } from 'vitest';
import { issuersSchema, type OidcIssuer } from '../../../gateway/accounts/login/oidc-config.ts';

export const AUDIENCE = 'https://gateway.test/api';
export const CLIENT_ID = 'opentela';

type PrivateKey = Awaited<ReturnType<typeof generateKeyPair>>['privateKey'];
type Answer = () => Response | Promise<Response>;

export const json = (value: unknown) => () => Response.json(value);
export const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
export const seconds = () => Math.floor(Date.now() / 1_000);

let made = 0;

/** Each has a unique address, so that what the gateway remembers of one does not affect the next. */
export class HostileIssuer {
  readonly issuer = `https://hostile-${++made}.example.org`;
  readonly config: OidcIssuer;
  readonly keys: JWK[] = [];
  /** By path; other paths are 404. */
  readonly answers = new Map<string, Answer>();
  /** Requested paths. */
  readonly asked: string[] = [];
  #key: PrivateKey | undefined;

  constructor(more: object = {}) {
    const given = {
      issuer: this.issuer,
      name: 'Hostile',
      client_id: CLIENT_ID,
      audience: AUDIENCE,
      admits: 'everybody',
    };
    const [config] = issuersSchema.parse([{ ...given, ...more }]);
    if (config === undefined) throw new Error('no issuer');
    this.config = config;
    this.answers.set('/.well-known/openid-configuration', json(this.discovery()));
    this.answers.set('/jwks', () => Response.json({ keys: this.keys }));
  }

  /** A provider with one good key; its responses replace fetch's. */
  static async open(more: object = {}): Promise<HostileIssuer> {
    const one = new HostileIssuer(more);
    const { privateKey, jwk } = await newKey('RS256', { kid: 'good' });
    one.#key = privateKey;
    one.keys.push(jwk);
    listen(one);
    return one;
  }

  discovery(more: object = {}) {
    const at = (path: string) => `${this.issuer}${path}`;
    const endpoints = { authorization_endpoint: at('/auth'), token_endpoint: at('/token'), jwks_uri: at('/jwks') };
    return { issuer: this.issuer, ...endpoints, ...more };
  }

  /** A valid token, except for the given changes. */
  async token(claims: object = {}, header: Partial<JWTHeaderParameters> = {}, key?: PrivateKey | Uint8Array) {
    const signing = key ?? this.#key;
    if (signing === undefined) throw new Error('no key');
    return new SignJWT(this.claims(claims)).setProtectedHeader({ alg: 'RS256', kid: 'good', ...header }).sign(signing);
  }

  claims(more: object = {}) {
    return { iss: this.issuer, aud: AUDIENCE, sub: 'ada', iat: seconds(), exp: seconds() + 600, ...more };
  }
}

export async function newKey(alg: string, more: JWK = {}): Promise<{ privateKey: PrivateKey; jwk: JWK }> {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  return { privateKey, jwk: { ...(await exportJWK(publicKey)), alg, use: 'sig', ...more } };
}

const open = new Map<string, HostileIssuer>();

function listen(one: HostileIssuer): void {
  open.set(one.issuer, one);
  if (vi.isMockFunction(globalThis.fetch)) return;
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (input) => {
    const url = new URL(input instanceof Request ? input.url : String(input));
    const found = open.get(url.origin);
    found?.asked.push(url.pathname);
    return (await found?.answers.get(url.pathname)?.()) ?? new Response('', { status: 404 });
  });
}
