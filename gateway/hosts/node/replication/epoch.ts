/** The root key decides which gateway is the primary: the signed statement with the highest epoch is valid. */
import * as z from 'zod';
import { fromBase64url, toBase64url } from '../../../../shared/lattice/base64url.ts';
import { SIGNATURE_BYTES, type Signer } from '../../../../shared/lattice/crypto-interface.ts';
import { workerdCrypto } from '../../../issuer/crypto.ts';

const statementSchema = z.object({
  /** Increases with every promotion. The first gateway of an institution has 0. */
  epoch: z.number().int().min(1).max(1_000_000),
  /** Name of the primary's gateway key. */
  first: z.string().regex(/^[a-z2-7]{52}$/),
  /** URL of the primary. */
  url: z.url({ protocol: /^https?$/ }).max(2048),
  /** The last change of the former primary that the promoted one has. Later changes are listed, never merged. */
  since: z.number().int().min(0),
  /** The feed in which `since` counts. */
  feed: z.string().max(64),
});
type EpochStatement = z.infer<typeof statementSchema>;

/** `JSON.signature`, base64url both. */
export function signEpoch(statement: EpochStatement, root: Signer): string {
  const body = Buffer.from(JSON.stringify(statement));
  return `${body.toString('base64url')}.${toBase64url(root.sign(message(body)))}`;
}

/** Undefined if it is not signed by `root`, or malformed. */
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
