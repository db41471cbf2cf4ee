/** A circuit through a gateway: two WebSockets that it joins. Binary messages are the circuit's bytes; these texts keep them bounded. */

/** Bytes that an end may send beyond those that the gateway reported as read. */
export const CIRCUIT_WINDOW_BYTES = 512 * 1024;

/** After so many bytes to one end the gateway asks it whether it has read them. */
export const CIRCUIT_STEP_BYTES = 64 * 1024;

/** A message counts as so many bytes at least, wherever bytes are granted: what waits for an end is a list, and its rows are not free. */
const CIRCUIT_MESSAGE_MIN_BYTES = 64;

export function circuitCost(bytes: number): number {
  return Math.max(bytes, CIRCUIT_MESSAGE_MIN_BYTES);
}

/** Both ends have proven their sessions. */
export const CONNECTED_TEXT = 'connected';

/** Sent to an end, which repeats it once it has read all bytes before it. The number cannot be guessed without reading it. */
export const READ_TEXT = /^read ([0-9a-f]{16})$/;

/** Sent to the other end: it may send CIRCUIT_STEP_BYTES more. */
export const MORE_TEXT = 'more';

/** Names of circuits, which the gateway makes. */
export const CIRCUIT_NAME = /^[0-9a-f]{32}$/;
