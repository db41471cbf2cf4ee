/**
 * TLS 1.3 between two sessions. It proves that each end holds its session's key. Names and dates in the certificates
 * are not checked.
 */
import { constants, type X509Certificate } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { createSecureContext, type SecureContext, TLSSocket, connect as tlsConnect } from 'node:tls';
import { selfSignedCertificate } from '../../../node/self-signed-certificate.ts';
import type { SessionKey } from './session-key.ts';

/** SubjectPublicKeyInfo of an Ed25519 key, up to the key bytes (RFC 8410 §4). */
const SPKI_HEAD = Buffer.from('302a300506032b6570032100', 'hex');

export function sessionContext(session: SessionKey): SecureContext {
  return createSecureContext({
    key: session.privateKey,
    cert: selfSignedCertificate(session),
    minVersion: 'TLSv1.3',
    maxVersion: 'TLSv1.3',
    ciphers: 'TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256',
    sigalgs: 'ed25519', // the only key type of sessions
    // X25519 only. The default, X25519MLKEM768, adds 2.2 KB to each handshake; channels are replaced regularly, and
    // idle traffic has to stay small.
    ecdhCurve: 'X25519',
    // TLS sessions are not resumed, so every channel proves both keys again.
    secureOptions: constants.SSL_OP_NO_TICKET,
  });
}

export function secureServer(socket: Duplex, context: SecureContext): TLSSocket {
  const secured = new TLSSocket(socket, {
    isServer: true,
    secureContext: context,
    requestCert: true,
    rejectUnauthorized: false, // the certificate is self-signed; the caller compares its key instead
  });
  return quiet(secured);
}

export function secureClient(socket: Duplex, context: SecureContext): TLSSocket {
  return quiet(tlsConnect({ socket, secureContext: context, rejectUnauthorized: false }));
}

/**
 * A socket that ends during its handshake reports that twice: as `close` and as `error`. Without a listener the error
 * would end the process.
 */
function quiet(socket: TLSSocket): TLSSocket {
  return socket.on('error', () => {});
}

/** The raw Ed25519 key that the other end has proven to hold; undefined if it has proven none. */
export function peerPublicKey(socket: TLSSocket): Uint8Array | undefined {
  const certificate: X509Certificate | undefined = socket.getPeerX509Certificate();
  if (certificate === undefined || socket.getProtocol() !== 'TLSv1.3') return undefined;
  const spki = certificate.publicKey.export({ type: 'spki', format: 'der' });
  if (spki.length !== SPKI_HEAD.length + 32 || !spki.subarray(0, SPKI_HEAD.length).equals(SPKI_HEAD)) return undefined;
  return spki.subarray(SPKI_HEAD.length);
}
