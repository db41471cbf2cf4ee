/**
 * Who pays, as it travels with a request to its node and comes back with the report. Sealed by the gateway: a provider neither
 * learns whose request it serves nor can charge somebody else. Sealed once per look-up of a key, so that no request pays for it.
 */
import { seal, unseal } from '../accounts/seal.ts';

export interface Identity {
  keyId: string;
  userId: string;
  projectId: string;
  /** Whose limits count it; empty: nobody's. */
  subject: string;
  /** In the trace export. */
  traced: boolean;
}

export interface Receipt extends Identity {
  model: string;
  /** Counters that limits need, and nothing else. */
  untracked: boolean;
}

/** Of the operator key of the environment, and of whatever else is not sealed. */
const UNSEALED: Identity = { keyId: '', userId: '', projectId: '', subject: '', traced: false };

export function sealIdentity(secret: string, identity: Identity): Promise<string> {
  const { keyId, userId, projectId, subject, traced } = identity;
  return seal(secret, 'receipt', JSON.stringify([keyId, userId, projectId, subject, traced]));
}

/** What a request sends along. */
export function receiptOf(identity: string, model: string, untracked: boolean): string {
  return `${identity}\n${untracked ? '-' : '+'}\n${model}`;
}

export async function openReceipt(secret: string, receipt: string): Promise<Receipt> {
  const [sealed = '', flag, ...model] = receipt.split('\n');
  const identity = await openSeal(secret, sealed);
  return { ...identity, model: model.join('\n'), untracked: flag === '-' };
}

async function openSeal(secret: string, sealed: string): Promise<Identity> {
  const text = await unseal(secret, 'receipt', sealed);
  if (text === undefined) return UNSEALED; // forged, or of a gateway with another secret
  const [keyId, userId, projectId, subject, traced] = JSON.parse(text);
  return { keyId, userId, projectId, subject, traced };
}
