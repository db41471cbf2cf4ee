/**
 * The receipt: an encrypted statement about the payer of a request. It is sent to the node, which returns it with its
 * usage report. Because of the encryption, a provider neither learns the payer nor can charge another account. A key's
 * identity is encrypted once per look-up of the key, so most requests do not encrypt.
 */
import * as z from 'zod';
import { SAMPLING_NAMES, type Sampling } from '../../shared/openai/sampling-parameters.ts';
import { KIND_NAME_MAX_CHARS } from '../../shared/routing/kinds/request-kind.ts';
import { withoutPayerProject } from '../../shared/usage/readable-receipt.ts';
import { decryptText, encryptText } from './encrypt-text.ts';

export interface ReceiptIdentity {
  keyId: string;
  userId: string;
  projectId: string;
  /** Name of the limits object that counts the request; empty: none. */
  subject: string;
  /** True if the request is included in the trace export. */
  traced: boolean;
  /** True if the trace export includes the request's prefix buckets. */
  prefixes: boolean;
  /**
   * Whether a limit of the request counts usage by user, by model, or as GPU time. Usage by key and project always
   * counts.
   */
  counted: { user: boolean; model: boolean; gpu: boolean };
}

export interface Receipt extends ReceiptIdentity {
  model: string;
  /** The request's sampling parameters; undefined: it had none. */
  sampling: Sampling | undefined;
  /** The request's kind, as predicted when it arrived; undefined: the model has no kinds. */
  kind: string | undefined;
  /** True if only the counters that limits need may be stored. */
  untracked: boolean;
}

/** For the operator key in the environment, and for receipts that cannot be decrypted: no limit counts the request. */
const NOTHING_COUNTED = { user: false, model: false, gpu: false };
const UNSEALED: ReceiptIdentity = {
  keyId: '',
  userId: '',
  projectId: '',
  subject: '',
  traced: false,
  prefixes: false,
  counted: NOTHING_COUNTED,
};

/**
 * Bits of the last member of an encrypted identity. The bits above SUBJECT_SHIFT are an index into SUBJECTS, which
 * names the kind of owner of the limits object.
 */
const FLAGS = { traced: 1, prefixes: 2, user: 4, model: 8, gpu: 16 };
const SUBJECT_SHIFT = 5;
const SUBJECTS = ['', 'key', 'user', 'project'];

/** Encrypts an identity. The result is short, because it is sent with every request. */
export function sealIdentity(secret: string, identity: ReceiptIdentity): Promise<string> {
  const { keyId, userId, projectId, subject, traced, prefixes, counted } = identity;
  const content = { ...counted, traced, prefixes };
  let flags = SUBJECTS.indexOf(subject.split(':', 1)[0] ?? '') << SUBJECT_SHIFT;
  for (const [name, bit] of Object.entries(FLAGS)) if (content[name as keyof typeof FLAGS]) flags |= bit;
  return encryptText(secret, 'receipt', JSON.stringify([keyId, userId, projectId, flags]));
}

interface ReadableReceipt {
  sampling?: Sampling | undefined;
  kind?: string | undefined;
}

/** Returns the receipt of a request: the encrypted identity, and facts that the node knows anyway. */
export function receiptOf(
  identity: string,
  model: string,
  untracked: boolean,
  { sampling, kind }: ReadableReceipt = {},
): string {
  const content = kind === undefined ? sampling : [kind, sampling ?? {}];
  const text = content === undefined || untracked ? '' : JSON.stringify(content);
  return `${identity}\n${untracked ? '-' : '+'}${text}\n${model}`;
}

/** Parses a receipt. `identity` is what `openIdentity` returned for its encrypted part. */
export function readReceipt(receipt: string, identity: ReceiptIdentity): Receipt {
  const [, facts = '', ...model] = receipt.split('\n');
  const text = withoutPayerProject(facts);
  const { sampling, kind } = text.length > 1 ? parseReceipt(text.slice(1)) : {};
  return { ...identity, model: model.join('\n'), untracked: text.startsWith('-'), sampling, kind };
}

/**
 * Returns the encrypted part of a receipt. It is the same for all requests of a key until the key is looked up again.
 */
export function receiptSealOf(receipt: string): string {
  return receipt.slice(0, Math.max(0, receipt.indexOf('\n')));
}

const samplingSchema = z.partialRecord(z.enum(SAMPLING_NAMES), z.number());
const saidSchema = z.union([z.tuple([z.string().min(1).max(KIND_NAME_MAX_CHARS), samplingSchema]), samplingSchema]);

/** Parses the readable part. The receipt of a late report comes from its agent, so it may be malformed. */
function parseReceipt(text: string): ReadableReceipt {
  try {
    const content = saidSchema.safeParse(JSON.parse(text)).data;
    if (content === undefined) return {};
    const [kind, sampling] = Array.isArray(content) ? content : [undefined, content];
    return { sampling: Object.keys(sampling).length === 0 ? undefined : (sampling as Sampling), kind };
  } catch {
    return {};
  }
}

export async function openIdentity(secret: string, sealed: string): Promise<ReceiptIdentity> {
  const text = await decryptText(secret, 'receipt', sealed);
  if (text === undefined) return UNSEALED; // the identity is forged, or from a gateway with another secret
  const [keyId, userId, projectId, flags, ...more] = JSON.parse(text);
  if (typeof flags === 'string') {
    // Receipts of earlier versions contain the name of the limits object here, and may lack the last members. They are
    // still read, because an agent may send a report a day after its request.
    const [traced, prefixes = false, counted = NOTHING_COUNTED] = more;
    return { keyId, userId, projectId, subject: flags, traced, prefixes, counted };
  }
  const has = (bit: number) => (flags & bit) !== 0;
  const kind = SUBJECTS[flags >> SUBJECT_SHIFT] ?? '';
  const ids: Record<string, string> = { key: keyId, user: userId, project: projectId };
  return {
    keyId,
    userId,
    projectId,
    subject: kind === '' ? '' : `${kind}:${ids[kind]}`,
    traced: has(FLAGS.traced),
    prefixes: has(FLAGS.prefixes),
    counted: { user: has(FLAGS.user), model: has(FLAGS.model), gpu: has(FLAGS.gpu) },
  };
}
