/** What an answer is written by: `node:http`'s ServerResponse is one, and PlainResponse. */
export interface ResponseWriter {
  readonly destroyed: boolean;
  /** @throws Error where a header holds what no header may hold */
  writeHead(status: number, headers: Record<string, string>): unknown;
  /** Sends the head alone, where it has not gone. */
  flushHeaders(): void;
  /** False where what was written waits for the client. */
  write(bytes: Uint8Array): boolean;
  end(body?: Uint8Array | string): unknown;
  /** Ends the connection, so that no client takes half a body for all of it. */
  destroy(): unknown;
  on(event: 'drain' | 'close', call: () => void): unknown;
  removeListener(event: 'drain' | 'close', call: () => void): unknown;
}
