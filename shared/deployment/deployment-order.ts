/**
 * An order to one session, signed by a gateway of the institution that admitted the session: start this deployment,
 * stop the running one, load or unload a model of the running engine, drain and end, or drain and restart as another
 * version. A tunnel, a relay or another
 * institution's gateway that carries the order can neither create an order nor use it twice.
 */
import * as z from 'zod';
import { ByteReader, ByteWriter, copyBytes } from '../lattice/byte-codec.ts';
import { type Crypto, SIGNATURE_BYTES, type Signer } from '../lattice/crypto-interface.ts';
import {
  CERTIFICATE_BYTES,
  decodeCertificate,
  issuerId,
  keyName,
  openCertificate,
} from '../lattice/gateway-certificate.ts';
import { LatticeError } from '../lattice/lattice-error.ts';
import { modelSchema } from '../lattice/node-record.ts';
import { packSession, readSession, SESSION_BYTES } from '../lattice/session-id.ts';
import { DeploymentError } from './deployment-error.ts';
import { parametersSchema, templateNameSchema } from './template-parameters.ts';

/** Ids of deployments, chosen by the caller. The session of a deployment publishes its id. */
const DEPLOYMENT_ID_PATTERN = /^[a-z0-9][a-z0-9-]{0,62}$/;
export const deploymentIdSchema = z.string().regex(DEPLOYMENT_ID_PATTERN);

const startSchema = z.strictObject({
  action: z.literal('start'),
  id: deploymentIdSchema,
  template: templateNameSchema,
  parameters: parametersSchema,
});
const stopSchema = z.strictObject({
  action: z.literal('stop'),
  id: deploymentIdSchema,
  /** Maximum time to wait for running requests, in milliseconds. */
  drain_ms: z.number().int().nonnegative().max(86_400_000),
});
/** The agent's running engine loads a model that it knows: it wakes. */
const loadSchema = z.strictObject({ action: z.literal('load'), model: modelSchema.shape.id });
/** The agent's running engine unloads a model and keeps running. */
const unloadSchema = z.strictObject({
  action: z.literal('unload'),
  model: modelSchema.shape.id,
  /** The engine sleeps: 1 keeps the weights in the machine's memory, 2 reads them from disk again. */
  sleep: z.union([z.literal(1), z.literal(2)]).optional(),
  /** Maximum time to wait for running requests, in milliseconds. If some still run then, the model stays loaded. */
  drain_ms: z.number().int().nonnegative().max(86_400_000),
});
/** The agent accepts nothing new, finishes running requests, and ends. */
const drainSchema = z.strictObject({ action: z.literal('drain') });
/**
 * The agent drains, and restarts as the program that has been installed in its place. That program must have the given
 * version.
 */
const restartSchema = z.strictObject({ action: z.literal('restart'), version: z.string().min(1).max(64) });
/** The agent reports its engine's output and its GPUs' utilization. It changes nothing. */
const inspectSchema = z.strictObject({ action: z.literal('inspect') });
const deploymentRequestSchema = z.discriminatedUnion('action', [
  startSchema,
  stopSchema,
  loadSchema,
  unloadSchema,
  drainSchema,
  restartSchema,
  inspectSchema,
]);

export type StartRequest = z.infer<typeof startSchema>;
export type StopRequest = z.infer<typeof stopSchema>;
export type LoadRequest = z.infer<typeof loadSchema>;
export type UnloadRequest = z.infer<typeof unloadSchema>;
/** The action to take. */
export type DeploymentRequest = z.infer<typeof deploymentRequestSchema>;

export const ORDER_NONCE_BYTES = 16;
const REQUEST_MAX_BYTES = 8 * 1024;
const ORDER_MAX_BYTES =
  CERTIFICATE_BYTES + SESSION_BYTES + ORDER_NONCE_BYTES + 4 + 2 + REQUEST_MAX_BYTES + SIGNATURE_BYTES;

/**
 * Number of seconds for which an order is valid. An order travels for about a second, but the clocks of clusters are
 * not always right.
 */
export const ORDER_LIFE_S = 120;
/** Maximum validity in seconds. It is bounded because an agent remembers a nonce until its order expires. */
export const ORDER_LIFE_MAX_S = 600;

export interface OrderFields {
  /** The certificate of the gateway that signs. */
  certificate: Uint8Array;
  session: string;
  nonce: Uint8Array;
  /** Seconds since 1970, from which on the order is not valid. */
  notAfter: number;
  wish: DeploymentRequest;
}

export function signOrder(fields: OrderFields, gateway: Signer): Uint8Array {
  const { certificate, session, nonce, notAfter, wish: request } = fields;
  const own = new ByteWriter()
    .bytes(packSession(session))
    .bytes(nonce)
    .u32(notAfter)
    .text(JSON.stringify(deploymentRequestSchema.parse(request)))
    .done();
  const body = new ByteWriter().bytes(certificate).bytes(own).done();
  return new ByteWriter()
    .bytes(body)
    .bytes(gateway.sign(message(body)))
    .done();
}

/** Facts that the receiver of an order knows. */
interface OrderContext {
  /** The receiver's session. */
  session: string;
  /** The issuer of the receiver's ticket. Orders of any other issuer are invalid. */
  issuer: string;
  nowS: number;
  /** True if the institution has revoked that key or root. */
  revoked(keyName: string): boolean;
  crypto: Crypto;
}

interface Order {
  nonce: string;
  notAfter: number;
  wish: DeploymentRequest;
}

/**
 * Reads an order and checks everything except whether it was used before. The most informative checks come first: if
 * the order is from another institution, the error says this, whatever else is wrong with the order. @throws
 * DeploymentError
 */
export function openOrder(bytes: Uint8Array, context: OrderContext): Order {
  const read = decodeOrder(bytes);
  const { certificate, session, notAfter } = read;
  const { issuer, crypto, nowS } = context;
  if (issuerId(certificate.root, crypto) !== issuer)
    throw new DeploymentError(
      'foreign_issuer',
      'the order was signed by an institution that did not admit this session',
    );
  if (nowS < certificate.notBefore || nowS >= certificate.notAfter)
    throw new DeploymentError('expired', "the certificate of the order's gateway is not valid now");
  if (context.revoked(certificate.keyName) || context.revoked(keyName(certificate.root)))
    throw new DeploymentError('revoked_key', 'the key that signed the order was revoked by its institution');
  const body = bytes.subarray(0, bytes.length - SIGNATURE_BYTES);
  if (!isCertified(certificate.bytes, crypto) || !crypto.verify(certificate.key, message(body), read.signature))
    throw new DeploymentError('bad_signature', 'the order is not signed by a gateway of this institution');
  if (session !== context.session)
    throw new DeploymentError(
      'wrong_session',
      `the order is for session ${session}, but this is session ${context.session}`,
    );
  if (notAfter <= nowS)
    throw new DeploymentError('expired', `the order expired ${nowS - notAfter} s ago by this machine's clock`);
  if (notAfter > nowS + ORDER_LIFE_MAX_S)
    throw new DeploymentError(
      'expired',
      `the order is valid for ${notAfter - nowS} s by this machine's clock, but at most ${ORDER_LIFE_MAX_S} s are allowed: check the clock`,
    );
  return { nonce: read.nonce, notAfter, wish: readWish(read.text) };
}

function decodeOrder(bytes: Uint8Array) {
  try {
    if (bytes.length > ORDER_MAX_BYTES) throw new LatticeError('too_large', `order of ${bytes.length} bytes`);
    const input = new ByteReader(copyBytes(bytes));
    const certificate = decodeCertificate(input.bytes(CERTIFICATE_BYTES));
    const session = readSession(input);
    const nonce = Array.from(input.bytes(ORDER_NONCE_BYTES), (byte) => byte.toString(16).padStart(2, '0')).join('');
    const notAfter = input.u32();
    const text = input.text(REQUEST_MAX_BYTES);
    const signature = input.bytes(SIGNATURE_BYTES);
    input.end();
    return { certificate, session, nonce, notAfter, text, signature };
  } catch (cause) {
    if (!(cause instanceof LatticeError)) throw cause;
    throw new DeploymentError('malformed', `not a valid order: ${cause.message}`, { cause });
  }
}

function isCertified(certificate: Uint8Array, crypto: Crypto): boolean {
  try {
    openCertificate(certificate, crypto);
    return true;
  } catch (error) {
    if (error instanceof LatticeError) return false;
    throw error;
  }
}

function readWish(text: string): DeploymentRequest {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new DeploymentError('malformed', 'the order is not JSON', { cause });
  }
  const read = deploymentRequestSchema.safeParse(value);
  if (read.success) return read.data;
  throw new DeploymentError(
    'malformed',
    `the order is not valid, or is for a newer agent: ${z.prettifyError(read.error)}`,
  );
}

function message(body: Uint8Array): Uint8Array {
  return new ByteWriter().label('deployment').bytes(body).done();
}
