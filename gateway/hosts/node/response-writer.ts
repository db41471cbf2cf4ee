/** The interface for writing a response: `node:http`'s ServerResponse implements it, and so does FastPathResponse. */
export interface ResponseWriter {
  readonly destroyed: boolean;
  /** @throws Error if a header contains invalid characters */
  writeHead(status: number, headers: Record<string, string>): unknown;
  /** Sends the head alone, if it was not sent yet. */
  flushHeaders(): void;
  /** False if the written bytes wait for the client. */
  write(bytes: Uint8Array): boolean;
  end(body?: Uint8Array | string): unknown;
  /** Ends the connection, so that no client takes half a body for a whole one. */
  destroy(): unknown;
  on(event: 'drain' | 'close', call: () => void): unknown;
  removeListener(event: 'drain' | 'close', call: () => void): unknown;
}
