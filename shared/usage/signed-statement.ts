/**
 * A statement between two institutions: the records of a month, one per line, and a last line with a Merkle root over
 * them that a gateway of the institution signed. A file that was cut has no last line.
 */
import * as z from 'zod';
import { fromBase64url, toBase64url } from '../lattice/base64url.ts';
import { type Crypto, SIGNATURE_BYTES, type Signer } from '../lattice/crypto-interface.ts';
import { CERTIFICATE_BYTES, type Certificate, issuerId, openCertificate } from '../lattice/gateway-certificate.ts';
import { tryParseJson } from '../text/parse-json.ts';
import { HASH_BYTES, MerkleRoot, PROOF_MAX, provenRoot } from './merkle-tree.ts';
import { RECORD_MAX_CHARS, readRecordLine, recordLine, type StatementRecord } from './statement-record.ts';

/** Maximum number of records in a statement. A request per second for a month are 2.7 million. */
export const RECORDS_MAX = 5_000_000;

const sum = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const hash = z
  .string()
  .refine((text) => fromBase64url(text, HASH_BYTES)?.length === HASH_BYTES, 'must be 32 bytes in base64url');
const issuer = z.string().regex(/^[a-z2-7]{26}$/);

const headSchema = z.strictObject({
  version: z.literal(1),
  /** UTC, for example 2026-11. */
  month: z.string().regex(/^\d{4}-(?:0[1-9]|1[0-2])$/),
  /** `served`: what nodes of `issuer` served for `peer`. `used`: what users of `issuer` used at `peer`. */
  side: z.enum(['served', 'used']),
  /** Issuer of the institution that signs. */
  issuer,
  /** Issuer of the other institution. */
  peer: issuer,
  /** Seconds since 1970. */
  made_at: z.number().int().min(0),
  /** False if records may still be added: the month has not ended a week ago. */
  final: z.boolean(),
  /** Number of records. */
  size: z.number().int().min(0).max(RECORDS_MAX),
  /** Merkle root of the records, base64url. */
  root: hash,
  prompt: sum,
  completion: sum,
  cached: sum,
  reasoning: sum,
  gpu_ms: sum,
  /**
   * Sums of requests that must leave no record, as their clients asked. No line proves them. Only the institution of
   * the nodes counts them.
   */
  untracked: z.strictObject({ requests: sum, prompt: sum, completion: sum, gpu_ms: sum }),
});
export type StatementHead = z.infer<typeof headSchema>;

const sealSchema = z.strictObject({
  statement: headSchema,
  /** The gateway's certificate, which the root key of its institution signed, base64url. */
  certificate: z.string().max(512),
  signature: z.string().max(128),
});
export type SignedHead = z.infer<typeof sealSchema>;

const proofSchema = z.strictObject({
  record: z.string().max(RECORD_MAX_CHARS),
  index: z.number().int().min(0).max(RECORDS_MAX),
  proof: z.array(hash).max(PROOF_MAX),
  signed: sealSchema,
});
/** Proves that a record is part of a statement, without the other records. */
export type RecordProof = z.infer<typeof proofSchema>;

/** Maximum length of a proof's text, and of a last line. */
export const PROOF_MAX_CHARS = 32 * 1024;

type StatementErrorCode = 'malformed' | 'too_long' | 'unsigned' | 'wrong_root' | 'bad_signature' | 'wrong_issuer';

/** The file is not a valid statement, or the text no valid proof. */
export class StatementError extends Error {
  readonly code: StatementErrorCode;

  constructor(code: StatementErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

const SUMS = ['prompt', 'completion', 'cached', 'reasoning', 'gpu_ms'] as const;
type Sums = Record<(typeof SUMS)[number], number>;
export type StatementFacts = Pick<StatementHead, 'month' | 'side' | 'issuer' | 'peer' | 'made_at' | 'final'>;

const encoder = new TextEncoder();

/** Counts records, and computes their root. */
class Tally {
  readonly #tree: MerkleRoot;
  readonly #sums: Sums = { prompt: 0, completion: 0, cached: 0, reasoning: 0, gpu_ms: 0 };

  constructor(crypto: Pick<Crypto, 'sha256'>) {
    this.#tree = new MerkleRoot(crypto);
  }

  /** @throws StatementError if there are too many records */
  add(record: StatementRecord, line: string): void {
    if (this.#tree.size >= RECORDS_MAX)
      throw new StatementError('too_long', `a statement has at most ${RECORDS_MAX} records`);
    this.#tree.add(encoder.encode(line));
    for (const name of SUMS)
      this.#sums[name] = Math.min(Number.MAX_SAFE_INTEGER, this.#sums[name] + (record[name] ?? 0));
  }

  get result(): Pick<StatementHead, 'size' | 'root' | keyof Sums> {
    return { size: this.#tree.size, root: toBase64url(this.#tree.root), ...this.#sums };
  }
}

/** Writes a statement line by line. */
export class StatementWriter {
  readonly #tally: Tally;

  readonly #untracked = { requests: 0, prompt: 0, completion: 0, gpu_ms: 0 };

  constructor(crypto: Pick<Crypto, 'sha256'>) {
    this.#tally = new Tally(crypto);
  }

  /** Counts a request that must leave no record. */
  untracked(counts: Pick<StatementRecord, 'prompt' | 'completion' | 'gpu_ms'>): void {
    this.#untracked.requests++;
    for (const name of ['prompt', 'completion', 'gpu_ms'] as const)
      this.#untracked[name] = Math.min(Number.MAX_SAFE_INTEGER, this.#untracked[name] + (counts[name] ?? 0));
  }

  /** Returns the line of a record. @throws StatementError too_long */
  record(record: StatementRecord): string {
    const line = recordLine(record);
    this.#tally.add(record, line);
    return line;
  }

  /** Returns the statement that a gateway's key must sign; see `signHead`. */
  head(facts: StatementFacts): StatementHead {
    return headSchema.parse({ version: 1, ...facts, ...this.#tally.result, untracked: { ...this.#untracked } });
  }
}

/** Signs the head of a statement. `certificate`: the gateway's certificate. */
export function signHead(
  statement: StatementHead,
  certificate: Pick<Certificate, 'bytes'>,
  signer: Signer,
): SignedHead {
  return {
    statement,
    certificate: toBase64url(certificate.bytes),
    signature: toBase64url(signer.sign(messageOf(statement))),
  };
}

function messageOf(statement: StatementHead): Uint8Array {
  const members = [...Object.keys(headSchema.shape), ...Object.keys(headSchema.shape.untracked.shape)];
  return encoder.encode(`otela-usage-statement-1\n${JSON.stringify(statement, members)}`);
}

/** Checks the signature of a head. @throws StatementError */
export function verifyHead({ statement, certificate, signature }: SignedHead, crypto: Crypto): StatementHead {
  const bytes = fromBase64url(certificate, CERTIFICATE_BYTES);
  const signed = fromBase64url(signature, SIGNATURE_BYTES);
  if (bytes === undefined || signed === undefined)
    throw new StatementError('malformed', 'the certificate or the signature is not base64url');
  const opened = opening(bytes, crypto);
  if (issuerId(opened.root, crypto) !== statement.issuer)
    throw new StatementError(
      'wrong_issuer',
      'the key that signed belongs to another institution than the statement says',
    );
  if (statement.made_at < opened.notBefore || statement.made_at >= opened.notAfter)
    throw new StatementError('bad_signature', 'the certificate was not valid when the statement was made');
  if (!crypto.verify(opened.key, messageOf(statement), signed))
    throw new StatementError('bad_signature', 'the signature does not match the statement');
  return statement;
}

function opening(bytes: Uint8Array, crypto: Crypto): Certificate {
  try {
    return openCertificate(bytes, crypto);
  } catch {
    throw new StatementError('bad_signature', 'the certificate is not signed by its root key');
  }
}

/** Reads a statement line by line, and checks it. */
export class StatementReader {
  readonly #crypto: Crypto;
  readonly #tally: Tally;
  #signed: SignedHead | undefined;
  #lines = 0;

  constructor(crypto: Crypto) {
    this.#crypto = crypto;
    this.#tally = new Tally(crypto);
  }

  /** Returns the record of a line; undefined: it is the last line. @throws StatementError */
  line(text: string): StatementRecord | undefined {
    this.#lines++;
    if (this.#signed !== undefined) throw new StatementError('malformed', 'there is text after the signed line');
    const record = readRecordLine(text);
    if (record !== undefined) {
      this.#tally.add(record, text);
      return record;
    }
    const signed = text.length > PROOF_MAX_CHARS ? undefined : sealSchema.safeParse(tryParseJson(text)).data;
    if (signed === undefined)
      throw new StatementError(
        'malformed',
        `line ${this.#lines} is neither a record in its only form nor the signed line`,
      );
    this.#signed = signed;
    return undefined;
  }

  /** Call after the last line. @throws StatementError if the file was cut, changed or not signed */
  end(): SignedHead {
    const signed = this.#signed;
    if (signed === undefined) throw new StatementError('unsigned', 'the file ends before its signed line');
    const { statement } = signed;
    for (const [name, value] of Object.entries(this.#tally.result)) {
      if (statement[name as keyof StatementHead] !== value)
        throw new StatementError('wrong_root', `the records have another ${name} than the signed line says`);
    }
    verifyHead(signed, this.#crypto);
    return signed;
  }
}

/** Reads a proof, and checks it. @throws StatementError */
export function verifyProof(text: string, crypto: Crypto): { record: StatementRecord; statement: StatementHead } {
  const parsed = text.length > PROOF_MAX_CHARS ? undefined : proofSchema.safeParse(tryParseJson(text)).data;
  const record = parsed && readRecordLine(parsed.record);
  if (parsed === undefined || record === undefined) throw new StatementError('malformed', 'the text is not a proof');
  const statement = verifyHead(parsed.signed, crypto);
  const proof = parsed.proof.map((one) => fromBase64url(one, HASH_BYTES) ?? new Uint8Array());
  const leaf = encoder.encode(parsed.record);
  const root = provenRoot({ leaf, index: parsed.index, size: statement.size, proof }, crypto);
  if (root === undefined || toBase64url(root) !== statement.root)
    throw new StatementError('wrong_root', 'the proof does not lead to the root of the statement');
  return { record, statement };
}
