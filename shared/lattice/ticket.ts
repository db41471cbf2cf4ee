/**
 * A ticket admits one session. It names the session's key, birth and end, its provider and its cluster, and contains
 * the gateway's certificate.
 */
import { ByteReader, ByteWriter, copyBytes } from './byte-codec.ts';
import { type Crypto, KEY_BYTES, SIGNATURE_BYTES, type Signer } from './crypto-interface.ts';
import {
  CERTIFICATE_BYTES,
  type Certificate,
  type CertificateCache,
  decodeCertificate,
  issuerId,
  openCertificate,
} from './gateway-certificate.ts';
import { LatticeError } from './lattice-error.ts';
import { ID_PATTERN } from './node-record.ts';
import { sessionIdFromDigest } from './session-id.ts';

export interface Ticket {
  readonly bytes: Uint8Array;
  /** The session's id. It certifies all other fields, so two tickets of one session have the same content. */
  readonly session: string;
  readonly issuer: string;
  readonly certificate: Certificate;
  /** Name of the certificate's key, with which the gateway signed this ticket. */
  readonly keyName: string;
  readonly sessionKey: Uint8Array;
  /** Seconds since 1970, by the gateway's clock. */
  readonly birth: number;
  readonly expires: number;
  readonly provider: string;
  readonly cluster: string;
}

/** Maximum life of a ticket. It bounds the time for which the entry of a session that has left must be kept. */
export const TICKET_LIFE_MAX_S = 30 * 86_400;
const NAME_MAX_BYTES = 63;
export const TICKET_MAX_BYTES = CERTIFICATE_BYTES + KEY_BYTES + 8 + 2 * (1 + NAME_MAX_BYTES) + SIGNATURE_BYTES;

interface TicketFields {
  certificate: Uint8Array;
  sessionKey: Uint8Array;
  birth: number;
  expires: number;
  provider: string;
  cluster: string;
}

/** @throws LatticeError malformed or outside_validity, if `openTicket` would refuse the ticket */
export function signTicket(fields: TicketFields, gateway: Signer, crypto: Crypto): Uint8Array {
  const certificate = decodeCertificate(fields.certificate);
  const own = ownFields(fields);
  const signature = gateway.sign(message(certificate, own));
  const bytes = new ByteWriter().bytes(certificate.bytes).bytes(own).bytes(signature).done();
  decodeTicket(bytes, crypto);
  return bytes;
}

/** Parses without verifying signatures. @throws LatticeError truncated, malformed, too_large, outside_validity */
export function decodeTicket(bytes: Uint8Array, crypto: Pick<Crypto, 'sha256'>): Ticket {
  if (bytes.length > TICKET_MAX_BYTES) throw new LatticeError('too_large', `ticket of ${bytes.length} bytes`);
  const input = new ByteReader(bytes);
  const certificate = decodeCertificate(input.bytes(CERTIFICATE_BYTES));
  const sessionKey = input.bytes(KEY_BYTES);
  const birth = input.u32();
  const expires = input.u32();
  const provider = readName(input);
  const cluster = readName(input);
  const own = bytes.subarray(CERTIFICATE_BYTES, bytes.length - input.rest);
  input.bytes(SIGNATURE_BYTES);
  input.end();
  if (birth < certificate.notBefore || birth >= certificate.notAfter)
    throw new LatticeError('outside_validity', 'the ticket was not issued while its certificate was valid');
  if (expires <= birth || expires - birth > TICKET_LIFE_MAX_S)
    throw new LatticeError('outside_validity', 'a ticket must be valid for more than 0 s and at most 30 days');
  const digest = crypto.sha256(identity(new ByteWriter().label('session'), certificate, own).done());
  const session = sessionIdFromDigest(digest);
  const issuer = issuerId(certificate.root, crypto);
  const { keyName } = certificate;
  return { bytes, session, issuer, certificate, keyName, sessionKey, birth, expires, provider, cluster };
}

/** Parses the ticket and verifies the whole chain from its bytes. @throws LatticeError */
export function openTicket(bytes: Uint8Array, crypto: Crypto, cache?: CertificateCache): Ticket {
  return verifyTicket(decodeTicket(copyBytes(bytes), crypto), crypto, cache);
}

/** Verifies a ticket that was decoded from its own copy of the bytes. @throws LatticeError bad_signature */
export function verifyTicket(ticket: Ticket, crypto: Crypto, cache?: CertificateCache): Ticket {
  const certificate = openCertificate(ticket.certificate.bytes, crypto, cache);
  const own = ticket.bytes.subarray(CERTIFICATE_BYTES, ticket.bytes.length - SIGNATURE_BYTES);
  const signature = ticket.bytes.subarray(ticket.bytes.length - SIGNATURE_BYTES);
  if (!crypto.verify(certificate.key, message(certificate, own), signature)) {
    throw new LatticeError('bad_signature', 'the ticket is not signed by its certified key');
  }
  return { ...ticket, certificate };
}

function ownFields(fields: TicketFields): Uint8Array {
  const { sessionKey, birth, expires, provider, cluster } = fields;
  return new ByteWriter().bytes(sessionKey).u32(birth).u32(expires).text(provider).text(cluster).done();
}

/** The ticket's content without signatures, because a signer could make several different signatures of one content. */
function identity(out: ByteWriter, certificate: Certificate, own: Uint8Array): ByteWriter {
  return out.bytes(certificate.bytes.subarray(0, CERTIFICATE_BYTES - SIGNATURE_BYTES)).bytes(own);
}

function message(certificate: Certificate, own: Uint8Array): Uint8Array {
  return identity(new ByteWriter().label('ticket'), certificate, own).done();
}

function readName(input: ByteReader): string {
  const name = input.text(NAME_MAX_BYTES);
  if (!ID_PATTERN.test(name)) throw new LatticeError('malformed', `not an id: it must match ${ID_PATTERN.source}`);
  return name;
}
