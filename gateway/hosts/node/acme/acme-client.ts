/** A client of a certificate authority with ACME (RFC 8555). It proves the control of names by HTTP-01. */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { calculateJwkThumbprint, FlattenedSign, type JWK } from 'jose';
import * as z from 'zod';
import { AcmeError, problemSchema, refusal } from './acme-error.ts';
import { AcmeTransport, getUnsigned, parseAnswer, type Signer } from './acme-transport.ts';

/** Bounds of the pause before an authority is asked again for the state of an order. */
const POLL = { leastMs: 1_000, mostMs: 30_000 };
/** Maximum authorizations of an order. One belongs to each name. */
const AUTHORIZATIONS_MAX = 100;
const CHALLENGES_MAX = 20;

/** URLs in answers. Without TLS, others on the network could read or change the requests. */
const urlSchema = z.url({ protocol: /^https$/ }).max(2_000);
const directorySchema = z.looseObject({
  newNonce: urlSchema,
  newAccount: urlSchema,
  newOrder: urlSchema,
  meta: z.looseObject({ externalAccountRequired: z.boolean().default(false) }).optional(),
});
type Directory = z.infer<typeof directorySchema>;
const orderSchema = z.looseObject({
  status: z.string(),
  authorizations: z.array(urlSchema).max(AUTHORIZATIONS_MAX),
  finalize: urlSchema,
  certificate: urlSchema.optional(),
  error: problemSchema.optional(),
});
type Order = z.infer<typeof orderSchema>;
const challengeSchema = z.looseObject({
  type: z.string(),
  url: z.string(),
  token: z.string().optional(),
  error: problemSchema.optional(),
});
const httpChallengeSchema = z.looseObject({
  url: urlSchema,
  /** The gateway serves it on port 80, so it must not contain markup (RFC 8555 §8.3). */
  token: z.string().regex(/^[\w-]{1,512}$/),
});
const authorizationSchema = z.looseObject({
  status: z.string(),
  identifier: z.looseObject({ value: z.string().max(253) }),
  challenges: z.array(challengeSchema).max(CHALLENGES_MAX),
});

interface Account {
  directoryUrl: string;
  /** A P-256 key. */
  key: KeyObject;
  email: string | undefined;
  /** Account at an authority that knows its customers (RFC 8555 §7.3.4). */
  binding: { kid: string; hmacKey: string } | undefined;
}

/** Serves the proof that a name belongs to this gateway. */
export interface ChallengeAnswers {
  add(token: string, keyAuthorization: string): void;
  remove(token: string): void;
}

export class AcmeClient {
  readonly #directory: Directory;
  readonly #transport: AcmeTransport;
  readonly #thumbprint: string;
  readonly #signal: AbortSignal;
  readonly #signer: Signer;

  private constructor(
    transport: AcmeTransport,
    account: { directory: Directory; thumbprint: string; signal: AbortSignal; signer: Signer },
  ) {
    this.#transport = transport;
    this.#directory = account.directory;
    this.#thumbprint = account.thumbprint;
    this.#signal = account.signal;
    this.#signer = account.signer;
  }

  /** Finds the account of this key, or creates it. @throws AcmeError */
  static async open({ directoryUrl, key, email, binding }: Account, signal: AbortSignal): Promise<AcmeClient> {
    const directory = parseAnswer(directoryUrl, await getUnsigned(directoryUrl, signal), directorySchema);
    if (directory.meta?.externalAccountRequired === true && binding === undefined)
      throw new AcmeError(`${directoryUrl} needs an account: set ACME_EAB_KID and ACME_EAB_HMAC_KEY`);
    const transport = new AcmeTransport(directory.newNonce, { accountKey: key, signal });
    const jwk: JWK = createPublicKey(key).export({ format: 'jwk' });
    const url = directory.newAccount;
    const { location } = await transport.post(
      url,
      { jwk },
      {
        termsOfServiceAgreed: true,
        ...(email !== undefined && { contact: [`mailto:${email}`] }),
        ...(binding !== undefined && { externalAccountBinding: await boundKey(jwk, url, binding) }),
      },
    );
    if (location === undefined) throw new AcmeError(`${url} gave no account`);
    const thumbprint = await calculateJwkThumbprint(jwk);
    return new AcmeClient(transport, { directory, thumbprint, signal, signer: { kid: location } });
  }

  /**
   * Returns the certificate with its chain, as the authority sent it.
   * @param csr request in DER
   * @throws AcmeError
   */
  async order(names: readonly string[], csr: Buffer, answers: ChallengeAnswers): Promise<string> {
    const identifiers = names.map((value) => ({ type: 'dns', value }));
    const { newOrder } = this.#directory;
    const created = await this.#transport.post(newOrder, this.#signer, { identifiers });
    const url = urlSchema.safeParse(created.location).data;
    if (url === undefined) throw new AcmeError(`${newOrder} gave no order`);
    const { authorizations } = parseAnswer(newOrder, created, orderSchema);
    for (const authorization of authorizations) await this.#authorize(authorization, answers);
    const { finalize } = await this.#orderWith(url, 'ready');
    await this.#transport.post(finalize, this.#signer, { csr: csr.toString('base64url') });
    const { certificate } = await this.#orderWith(url, 'valid');
    if (certificate === undefined) throw new AcmeError(`${url} is valid, but has no certificate`);
    return (await this.#transport.post(certificate, this.#signer)).text;
  }

  /** Proves the control of one name. */
  async #authorize(url: string, answers: ChallengeAnswers): Promise<void> {
    const asked = parseAnswer(url, await this.#transport.post(url, this.#signer), authorizationSchema);
    if (asked.status === 'valid') return;
    const { value: name } = asked.identifier;
    const found = asked.challenges.find(({ type }) => type === 'http-01');
    const challenge = httpChallengeSchema.safeParse(found).data;
    if (challenge === undefined) throw new AcmeError(`${url} offers no usable http-01 challenge for ${name}`);
    answers.add(challenge.token, `${challenge.token}.${this.#thumbprint}`);
    try {
      await this.#transport.post(challenge.url, this.#signer, {});
      const { status, challenges } = await this.#decided(url, authorizationSchema, ['pending']);
      if (status === 'valid') return;
      const problem = challenges.find(({ error }) => error !== undefined)?.error;
      throw refusal(name, problem ?? { type: '', detail: `the authorization is ${status}` });
    } finally {
      answers.remove(challenge.token);
    }
  }

  async #orderWith(url: string, wanted: 'ready' | 'valid'): Promise<Order> {
    // An order stays `ready` for a moment after its request was accepted.
    const unfinished = wanted === 'ready' ? ['pending'] : ['pending', 'ready', 'processing'];
    const order = await this.#decided(url, orderSchema, unfinished);
    if (order.status === wanted) return order;
    throw refusal('the order', order.error ?? { type: '', detail: `it is ${order.status}` });
  }

  /** Reads the resource until its status is not among `unfinished`. The signal bounds the time. */
  async #decided<T extends { status: string }>(
    url: string,
    schema: z.ZodType<T>,
    unfinished: readonly string[],
  ): Promise<T> {
    for (;;) {
      const answer = await this.#transport.post(url, this.#signer);
      const value = parseAnswer(url, answer, schema);
      if (!unfinished.includes(value.status)) return value;
      const waitMs = Math.min(Math.max(answer.retryAfterMs, POLL.leastMs), POLL.mostMs);
      await delay(waitMs, undefined, { signal: this.#signal });
    }
  }
}

/** Signs the account's key with the key that the authority gave to its customer. */
async function boundKey(jwk: JWK, url: string, { kid, hmacKey }: { kid: string; hmacKey: string }): Promise<object> {
  const payload = new TextEncoder().encode(JSON.stringify(jwk));
  const header = { alg: 'HS256', kid, url };
  return new FlattenedSign(payload).setProtectedHeader(header).sign(Buffer.from(hmacKey, 'base64url'));
}
