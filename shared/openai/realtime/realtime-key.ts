/** The key of a browser's realtime client: OpenAI's clients offer it as a subprotocol of the WebSocket. */

/** The subprotocol that a client offers and a server accepts. */
export const REALTIME_PROTOCOL = 'realtime';

const KEY_PROTOCOL = 'openai-insecure-api-key.';

/** @param protocols the header `sec-websocket-protocol` */
export function keyInProtocols(protocols: string | null): string | undefined {
  const offered = protocols?.split(',').map((name) => name.trim());
  return offered?.find((name) => name.startsWith(KEY_PROTOCOL))?.slice(KEY_PROTOCOL.length);
}
