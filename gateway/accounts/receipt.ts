/**
 * Who pays, as it travels with a request to its node and comes back with the report. Sealed by the gateway: a provider neither
 * learns whose request it serves nor can charge another account. Sealed once per look-up of a key, so that no request pays for it.
 */
import * as z from 'zod';
import { SAMPLING_NAMES, type Sampling } from '../../shared/openai/sampling.ts';
import { seal, unseal } from './seal.ts';

export interface Identity {
  keyId: string;
  userId: string;
  projectId: string;
  /** Whose limits count it; empty: nobody's. */
  subject: string;
  /** In the trace export. */
  traced: boolean;
  /** With prefix buckets. */
  prefixes: boolean;
}

export interface Receipt extends Identity {
  model: string;
  /** Where the request said something of it. */
  sampling: Sampling | undefined;
  /** Counters that limits need, and nothing else. */
  untracked: boolean;
}

/** Of the operator key of the environment, and of whatever else is not sealed. */
const UNSEALED: Identity = { keyId: '', userId: '', projectId: '', subject: '', traced: false, prefixes: false };

export function sealIdentity(secret: string, identity: Identity): Promise<string> {
  const { keyId, userId, projectId, subject, traced, prefixes } = identity;
  return seal(secret, 'receipt', JSON.stringify([keyId, userId, projectId, subject, traced, prefixes]));
}

/** What a request sends along: the identity, sealed, and what its node knows anyway. */
export function receiptOf(identity: string, model: string, untracked: boolean, sampling?: Sampling): string {
  const said = sampling === undefined || untracked ? '' : JSON.stringify(sampling);
  return `${identity}\n${untracked ? '-' : '+'}${said}\n${model}`;
}

/** `identity` is what `openIdentity` made of the receipt's seal. */
export function readReceipt(receipt: string, identity: Identity): Receipt {
  const [, said = '', ...model] = receipt.split('\n');
  return {
    ...identity,
    model: model.join('\n'),
    untracked: said.startsWith('-'),
    sampling: said.length > 1 ? readSampling(said.slice(1)) : undefined,
  };
}

/** The same for all that a key asks until it is looked up again. */
export function sealOf(receipt: string): string {
  return receipt.slice(0, Math.max(0, receipt.indexOf('\n')));
}

const samplingSchema = z.partialRecord(z.enum(SAMPLING_NAMES), z.number());

/** A late report's receipt is what its agent says. */
function readSampling(text: string): Sampling | undefined {
  try {
    return samplingSchema.safeParse(JSON.parse(text)).data as Sampling | undefined;
  } catch {
    return undefined;
  }
}

export async function openIdentity(secret: string, sealed: string): Promise<Identity> {
  const text = await unseal(secret, 'receipt', sealed);
  if (text === undefined) return UNSEALED; // forged, or of a gateway with another secret
  const [keyId, userId, projectId, subject, traced, prefixes = false] = JSON.parse(text);
  return { keyId, userId, projectId, subject, traced, prefixes };
}
