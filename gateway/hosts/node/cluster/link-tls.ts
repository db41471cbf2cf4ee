/**
 * Links use TLS with a pre-shared key (RFC 4279, RFC 5489): each end proves the cluster key during the handshake, so no
 * certificates are needed, and an end without the key cannot send a byte that is read.
 */
import type { ClusterKey } from './cluster-key.ts';

const IDENTITY = 'otela-cluster';
/** OpenSSL has pre-shared keys with forward secrecy only for TLS 1.2. */
const TLS = {
  ciphers: 'ECDHE-PSK-CHACHA20-POLY1305',
  minVersion: 'TLSv1.2',
  maxVersion: 'TLSv1.2',
  ALPNProtocols: ['h2'],
} as const;

export function serverTls({ link }: ClusterKey) {
  return { ...TLS, pskCallback: (_socket: unknown, identity: string) => (identity === IDENTITY ? link : null) };
}

export function clientTls({ link }: ClusterKey) {
  // The key authenticates the server. There is no certificate with a name to check.
  return { ...TLS, pskCallback: () => ({ identity: IDENTITY, psk: link }), checkServerIdentity: () => undefined };
}
