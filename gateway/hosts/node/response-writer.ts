/** The interface for writing a response. `node:http`'s ServerResponse and FastPathResponse implement it. */
export interface ResponseWriter {
  readonly destroyed: boolean;
  /** @throws Error if a header contains invalid characters */
  writeHead(status: number, headers: Record<string, string>): unknown;
  /** Sends the head without a body, if it was not sent yet. */
  flushHeaders(): void;
  /** Returns false if written bytes wait for the client. */
  write(bytes: Uint8Array): boolean;
  end(body?: Uint8Array | string): unknown;
  /** Ends the connection, so that a client does not mistake an incomplete body for a complete one. */
  destroy(): unknown;
  on(event: 'drain' | 'close', call: () => void): unknown;
  removeListener(event: 'drain' | 'close', call: () => void): unknown;
}
