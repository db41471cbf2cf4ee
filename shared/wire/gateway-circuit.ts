/**
 * A circuit joins two WebSockets through a gateway. Binary messages carry the circuit's bytes. The text messages below
 * bound the bytes that the gateway buffers.
 */

/** Maximum number of bytes that an end may have sent and that the gateway has not yet reported as read. */
export const CIRCUIT_WINDOW_BYTES = 512 * 1024;

/** After passing this number of bytes to an end, the gateway asks that end whether it has read them. */
export const CIRCUIT_STEP_BYTES = 64 * 1024;

/**
 * Minimum number of bytes that a message counts in the window. Waiting messages form a list, and each entry of the list
 * uses memory.
 */
const CIRCUIT_MESSAGE_MIN_BYTES = 64;

export function circuitCost(bytes: number): number {
  return Math.max(bytes, CIRCUIT_MESSAGE_MIN_BYTES);
}

/** Sent to both ends after both have proven their sessions. */
export const CONNECTED_TEXT = 'connected';

/**
 * Sent to an end, which returns the text after it has read all previous bytes. The number is random, so an end that
 * does not read cannot return it.
 */
export const READ_TEXT = /^read ([0-9a-f]{16})$/;

/** Sent to the sending end after the receiving end has read. The sending end may then send CIRCUIT_STEP_BYTES more. */
export const MORE_TEXT = 'more';

/** Format of circuit names, which the gateway generates. */
export const CIRCUIT_NAME = /^[0-9a-f]{32}$/;
