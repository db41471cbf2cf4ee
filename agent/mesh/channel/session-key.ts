/** The key pair of this agent's session. */
export interface SessionKey {
  /** Raw Ed25519. */
  publicKey: Uint8Array;
  sign(message: Uint8Array): Uint8Array;
  /** PKCS #8 in PEM: OpenSSL signs the handshakes of TLS itself. */
  privateKey: string;
}
