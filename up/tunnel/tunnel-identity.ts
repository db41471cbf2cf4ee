/**
 * The key with which agents recognize this machine. They trust only its certificate, so no other end can take its
 * place.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync, sign } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createSecureContext, type SecureContext } from 'node:tls';
import { createPrivateFile, readPrivateFile } from '../../node/private-file.ts';
import { selfSignedCertificate } from '../../node/self-signed-certificate.ts';
import { KEY_BYTES } from '../../shared/lattice/crypto-interface.ts';

/** The gateway's URL for agents. The name is that of the certificate; nothing resolves it. */
export const TUNNEL_URL = 'https://otela';

export interface TunnelIdentity {
  /** PEM, for the agents. */
  certificate: string;
  context: SecureContext;
}

export function tunnelIdentity(state: string): TunnelIdentity {
  const file = join(state, 'tunnel.pem');
  if (!existsSync(file)) {
    const { privateKey } = generateKeyPairSync('ed25519');
    try {
      createPrivateFile(file, String(privateKey.export({ type: 'pkcs8', format: 'pem' })));
    } catch (error) {
      // Another command made the key meanwhile. Its agents trust that key, so it stays.
      if (!existsSync(file)) throw error;
    }
  }
  const pem = readPrivateFile(file);
  const key = createPrivateKey(pem);
  const publicKey = createPublicKey(key).export({ type: 'spki', format: 'der' }).subarray(-KEY_BYTES);
  const certificate = selfSignedCertificate({ publicKey, sign: (message) => sign(null, message, key) });
  return { certificate, context: createSecureContext({ key: pem, cert: certificate, minVersion: 'TLSv1.3' }) };
}
