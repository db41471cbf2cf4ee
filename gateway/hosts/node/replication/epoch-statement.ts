/** Statements about the primary, signed by the root key. The statement with the highest epoch is valid. */
import * as z from 'zod';
import { fromBase64url, toBase64url } from '../../../../shared/lattice/base64url.ts';
import { SIGNATURE_BYTES, type Signer } from '../../../../shared/lattice/crypto-interface.ts';
import { workerdCrypto } from '../../../issuer/ed25519.ts';

const statementSchema = z.object({
  /** Increases with every promotion. Before the first promotion the epoch is 0. */
  epoch: z.number().int().min(1).max(1_000_000),
  /** Name of the gateway key of the primary. */
  first: z.string().regex(/^[a-z2-7]{52}$/),
  /** URL of the primary. */
  url: z.url({ protocol: /^https?$/ }).max(2048),
  /**
   * Number of the former primary's last change that the promoted gateway has. Later changes are listed for the
   * operator, never merged.
   */
  since: z.number().int().min(0),
  /** Id of the feed to which the number `since` belongs. */
  feed: z.string().max(64),
});
type EpochStatement = z.infer<typeof statementSchema>;

/** Returns the statement as JSON and its signature, each in base64url, separated by a period. */
export function signEpoch(statement: EpochStatement, root: Signer): string {
  const body = Buffer.from(JSON.stringify(statement));
  return `${body.toString('base64url')}.${toBase64url(root.sign(message(body)))}`;
}

/** Undefined if the statement is malformed or not signed by `root`. */
export function readEpoch(text: string, root: Uint8Array): EpochStatement | undefined {
  if (text.length > 8192) return undefined;
  const [encoded = '', signed = ''] = text.split('.');
  const body = Buffer.from(encoded, 'base64url');
  const signature = fromBase64url(signed, SIGNATURE_BYTES);
  if (signature === undefined || !workerdCrypto.verify(root, message(body), signature)) return undefined;
  try {
    return statementSchema.parse(JSON.parse(body.toString()));
  } catch {
    return undefined;
  }
}

function message(body: Uint8Array): Uint8Array {
  return Buffer.concat([Buffer.from('otela epoch\n'), body]);
}
