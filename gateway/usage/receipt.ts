/**
 * Who pays, as it travels with a request to its node and comes back with the report. Sealed by the gateway: a provider neither
 * learns whose request it serves nor can charge somebody else. Sealed once per look-up of a key, so that no request pays for it.
 */
import { sha256Hex } from '../accounts/secrets.ts';

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

const NONCE_BYTES = 12;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

export async function sealIdentity(secret: string, identity: Identity): Promise<string> {
  const nonce = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
  const { keyId, userId, projectId, subject, traced } = identity;
  const text = encoder.encode(JSON.stringify([keyId, userId, projectId, subject, traced]));
  const sealed = await crypto.subtle.encrypt({ name: 'AES-GCM', iv: nonce }, await keyOf(secret), text);
  return `${base64(nonce)}.${base64(new Uint8Array(sealed))}`;
}

/** What a request sends along. */
export function receiptOf(seal: string, model: string, untracked: boolean): string {
  return `${seal}\n${untracked ? '-' : '+'}\n${model}`;
}

export async function openReceipt(secret: string, receipt: string): Promise<Receipt> {
  const [seal = '', flag, ...model] = receipt.split('\n');
  const identity = await openSeal(secret, seal);
  return { ...identity, model: model.join('\n'), untracked: flag === '-' };
}

async function openSeal(secret: string, seal: string): Promise<Identity> {
  const [nonce, text] = seal.split('.');
  if (nonce === undefined || text === undefined) return UNSEALED;
  try {
    const open = await crypto.subtle.decrypt({ name: 'AES-GCM', iv: bytes(nonce) }, await keyOf(secret), bytes(text));
    const [keyId, userId, projectId, subject, traced] = JSON.parse(decoder.decode(open));
    return { keyId, userId, projectId, subject, traced };
  } catch {
    return UNSEALED; // forged, or of a gateway with another secret
  }
}

const keys = new Map<string, Promise<CryptoKey>>();

/** One installation has one secret; a few are kept. */
function keyOf(secret: string): Promise<CryptoKey> {
  let key = keys.get(secret);
  if (key === undefined) {
    if (keys.size > 3) keys.clear();
    const raw = hexBytes(sha256Hex(`otela-receipt-1\n${secret}`));
    key = crypto.subtle.importKey('raw', raw, 'AES-GCM', false, ['encrypt', 'decrypt']);
    keys.set(secret, key);
  }
  return key;
}

function hexBytes(hex: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array((hex.match(/../g) ?? []).map((pair) => Number.parseInt(pair, 16)));
}

function base64(data: Uint8Array): string {
  return btoa(String.fromCharCode(...data));
}

function bytes(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}
