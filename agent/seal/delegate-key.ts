/**
 * A provider's delegate key: created offline with the provider's root key, stored in a file of mode 0600 where its
 * agents run, and valid for 90 days.
 */
import * as z from 'zod';
import { readPrivateFile } from '../../node/private-file.ts';
import { fromBase64url, toBase64url } from '../../shared/lattice/base64url.ts';
import { KEY_BYTES, SIGNATURE_BYTES, type Signer } from '../../shared/lattice/crypto-interface.ts';
import { idSchema } from '../../shared/lattice/node-record.ts';
import {
  DELEGATE_LIFE_MAX_S,
  type Delegation,
  delegationMessage,
  vouchMessage,
  writeVouch,
} from '../../shared/seal/key-vouch.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { nodeCrypto, nodeSigner } from '../host/node-crypto.ts';

const fileSchema = z.object({
  provider: idSchema,
  root: z.string(),
  delegate: z.string(),
  not_after: z.number().int().positive(),
  signature: z.string(),
});

export class DelegateKey {
  readonly provider: string;
  /** End of validity, in seconds since 1970. */
  readonly notAfter: number;
  readonly #signer: Signer;
  readonly #delegation: Delegation;

  private constructor(provider: string, signer: Signer, delegation: Delegation) {
    this.provider = provider;
    this.notAfter = delegation.notAfter;
    this.#signer = signer;
    this.#delegation = delegation;
  }

  /** @throws Error that names the fault of the file, without its content */
  static read(path: string): DelegateKey {
    return DelegateKey.parse(readPrivateFile(path), path);
  }

  static parse(text: string, path: string): DelegateKey {
    const file = fileSchema.safeParse(tryParseJson(text)).data;
    const root = fromBase64url(file?.root ?? '', KEY_BYTES);
    const seed = fromBase64url(file?.delegate ?? '', KEY_BYTES);
    const signature = fromBase64url(file?.signature ?? '', SIGNATURE_BYTES);
    if (file === undefined || root === undefined || seed?.length !== KEY_BYTES || signature === undefined)
      throw new Error(`${path} was not created by otela-agent vouch`);
    const signer = nodeSigner(seed);
    const delegation = { root, delegate: signer.publicKey, notAfter: file.not_after, signature };
    if (!nodeCrypto.verify(root, delegationMessage(file.provider, delegation), signature))
      throw new Error(`${path}: it is not signed by the provider's root key`);
    return new DelegateKey(file.provider, signer, delegation);
  }

  /** The content of a new delegate key's file. @param now seconds since 1970 @param life lifetime in seconds */
  static make(provider: string, root: Signer, seed: Uint8Array, { now, life }: { now: number; life: number }): string {
    const notAfter = now + Math.min(life, DELEGATE_LIFE_MAX_S);
    const delegation = { delegate: nodeSigner(seed).publicKey, notAfter };
    const file: z.infer<typeof fileSchema> = {
      provider,
      root: toBase64url(root.publicKey),
      delegate: toBase64url(seed),
      not_after: notAfter,
      signature: toBase64url(root.sign(delegationMessage(provider, delegation))),
    };
    return `${JSON.stringify(file, null, 2)}\n`;
  }

  /**
   * Why clients do not accept the key for a session of this provider at `now` (seconds). Undefined if they accept it.
   */
  whyNot(provider: string, now: number): string | undefined {
    if (provider !== this.provider)
      return `the delegate key belongs to ${this.provider}, but the join token to ${provider}`;
    return now < this.notAfter ? undefined : `the delegate key expired on ${dayOf(this.notAfter)}`;
  }

  /**
   * Signs the encryption key. Undefined for a session of another provider, because clients would not accept the
   * signature.
   */
  vouch(named: { session: string; provider: string }, encryptionKey: Uint8Array, until: number): string | undefined {
    if (named.provider !== this.provider) return undefined;
    const keySignature = this.#signer.sign(vouchMessage({ ...named, encryptionKey, until }));
    return writeVouch({ ...this.#delegation, until, keySignature });
  }
}

export function dayOf(seconds: number): string {
  return new Date(seconds * 1000).toISOString().slice(0, 10);
}
