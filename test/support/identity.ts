/** A real identity provider on loopback (npm's oidc-provider), and a browser that logs in there. */
import { createServer, type Server } from 'node:http';
import { exportJWK, generateKeyPair, type JWK, type JWTHeaderParameters, SignJWT } from 'jose';
import Provider from 'oidc-provider';
import { atEnd } from './processes.ts';

export const CLIENT_ID = 'opentela';
export const CLIENT_SECRET = 'a secret of the client, with %/+ in it';
export const AUDIENCE = 'https://gateway.test/api';

interface IdentityOptions {
  redirectUri: string;
  /** Claims of each user by login name, in addition to `sub`, which is that name. */
  people: Record<string, Record<string, unknown>>;
  port?: number;
}

type Key = Awaited<ReturnType<typeof generateKeyPair>>['privateKey'];

export class Identity {
  readonly issuer: string;
  /** Number of requests for the provider's public keys. */
  keysAsked = 0;
  readonly #options: IdentityOptions;
  readonly #server: Server;
  #key: { key: Key; jwk: JWK };
  #handle: ReturnType<Provider['callback']>;

  private constructor(issuer: string, server: Server, key: { key: Key; jwk: JWK }, options: IdentityOptions) {
    this.issuer = issuer;
    this.#options = options;
    this.#server = server;
    this.#key = key;
    this.#handle = this.#provider();
    server.on('request', (request, response) => {
      if (request.url === '/jwks') this.keysAsked++;
      void this.#handle(request, response);
    });
  }

  static async start(options: IdentityOptions): Promise<Identity> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(options.port ?? 0, '127.0.0.1', resolve));
    const address = server.address();
    if (address === null || typeof address === 'string') throw new Error('no port');
    const identity = new Identity(`http://127.0.0.1:${address.port}`, server, await newKey(), options);
    atEnd(() => identity.stop());
    return identity;
  }

  #provider(): ReturnType<Provider['callback']> {
    const { people, redirectUri } = this.#options;
    const names = Object.values(people).flatMap((claims) => Object.keys(claims));
    const provider = new Provider(this.issuer, {
      clients: [{ client_id: CLIENT_ID, client_secret: CLIENT_SECRET, redirect_uris: [redirectUri] }],
      jwks: { keys: [this.#key.jwk] },
      claims: { openid: ['sub'], profile: [...new Set(names)], email: ['email'] },
      conformIdTokenClaims: false,
      pkce: { required: () => true },
      cookies: { keys: ['test'] },
      findAccount: (_: unknown, id: string) => ({
        accountId: id,
        claims: () => ({ sub: id, ...people[id] }),
      }),
    });
    return provider.callback();
  }

  /** Replaces the key; the old one is no longer known. */
  async rotate(): Promise<void> {
    this.#key = await newKey();
    this.#handle = this.#provider();
  }

  /** Signs a token with changed claims, header or key. */
  async token(claims: Record<string, unknown>, header: Partial<JWTHeaderParameters> = {}, key?: Key): Promise<string> {
    const now = Math.floor(Date.now() / 1000);
    return new SignJWT({ iss: this.issuer, aud: AUDIENCE, sub: 'ada', iat: now, exp: now + 600, ...claims })
      .setProtectedHeader({ alg: 'RS256', kid: this.#key.jwk.kid ?? '', ...header })
      .sign(key ?? this.#key.key);
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

export async function newKey(): Promise<{ key: Key; jwk: JWK }> {
  const { privateKey } = await generateKeyPair('RS256', { extractable: true });
  const jwk = { ...(await exportJWK(privateKey)), kid: crypto.randomUUID(), use: 'sig', alg: 'RS256' };
  return { key: privateKey, jwk };
}

/** Follows redirects with cookies per site, as a browser would, and fills in the provider's forms. */
export class Browser {
  readonly #cookies = new Map<string, Map<string, string>>();
  readonly #name: string;

  /** Logs in as `name` at every login form. */
  constructor(name: string) {
    this.#name = name;
  }

  cookie(url: string, name: string): string | undefined {
    return this.#cookies.get(new URL(url).host)?.get(name);
  }

  setCookie(url: string, name: string, value: string): void {
    const { host } = new URL(url);
    const jar = this.#cookies.get(host) ?? new Map<string, string>();
    this.#cookies.set(host, jar);
    jar.set(name, value);
  }

  /** Sends one request and follows no redirect. */
  async once(url: string, init: RequestInit = {}): Promise<Response> {
    const jar = this.#cookies.get(new URL(url).host) ?? new Map<string, string>();
    const headers = new Headers(init.headers);
    if (jar.size > 0) headers.set('cookie', [...jar].map(([name, value]) => `${name}=${value}`).join('; '));
    const response = await fetch(url, { ...init, headers, redirect: 'manual' });
    for (const line of response.headers.getSetCookie()) {
      const [pair = '', ...attributes] = line.split(';');
      const at = pair.indexOf('=');
      const over = attributes.some((one) => /^ *(max-age=0|expires=Thu, 01 Jan 1970)/i.test(one));
      if (over) jar.delete(pair.slice(0, at));
      else jar.set(pair.slice(0, at), pair.slice(at + 1));
    }
    this.#cookies.set(new URL(url).host, jar);
    return response;
  }

  /**
   * Follows until a page that is neither a redirect nor a form of the provider, or until `stop` returns true for the
   * next address.
   */
  async go(url: string, stop: (next: string) => boolean = () => false): Promise<{ url: string; response: Response }> {
    let next = url;
    let init: RequestInit = {};
    for (let hop = 0; hop < 20; hop++) {
      const response = await this.once(next, init);
      init = {};
      const location = response.headers.get('location');
      if (location !== null) {
        next = new URL(location, next).href;
        if (stop(next)) return { url: next, response };
        continue;
      }
      if (!new URL(next).pathname.startsWith('/interaction/') || !response.ok) return { url: next, response };
      const prompt = /name="prompt" value="(\w+)"/.exec(await response.text())?.[1] ?? 'login';
      const fields = { prompt, login: this.#name, password: 'x' };
      init = { method: 'POST', body: new URLSearchParams(fields) };
    }
    throw new Error(`no end of redirects at ${next}`);
  }
}
