/**
 * A circuit through a gateway: the gateway joins two WebSockets. Binary messages carry the circuit's bytes; these text
 * messages keep the buffers bounded.
 */

/** Bytes that an end may send beyond those that the gateway reported as read. */
export const CIRCUIT_WINDOW_BYTES = 512 * 1024;

/** After this many bytes to one end, the gateway asks whether they were read. */
export const CIRCUIT_STEP_BYTES = 64 * 1024;

/**
 * Every message counts as at least this many bytes for credit: the waiting messages form a list, and its entries use
 * memory, too.
 */
const CIRCUIT_MESSAGE_MIN_BYTES = 64;

export function circuitCost(bytes: number): number {
  return Math.max(bytes, CIRCUIT_MESSAGE_MIN_BYTES);
}

/** Both ends have proven their sessions. */
export const CONNECTED_TEXT = 'connected';

/**
 * Sent to an end, which repeats it after it has read all bytes before it. The number cannot be guessed without reading
 * it.
 */
export const READ_TEXT = /^read ([0-9a-f]{16})$/;

/** Sent to the other end: it may send CIRCUIT_STEP_BYTES more. */
export const MORE_TEXT = 'more';

/** Names of circuits, which the gateway makes. */
export const CIRCUIT_NAME = /^[0-9a-f]{32}$/;
