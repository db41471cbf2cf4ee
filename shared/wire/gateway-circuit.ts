/**
 * A circuit joins two WebSockets through a gateway. Binary messages carry the circuit's bytes; the text messages below
 * keep the gateway's buffers bounded.
 */

/** Maximum number of bytes that an end may send beyond those that the gateway reported as read. */
export const CIRCUIT_WINDOW_BYTES = 512 * 1024;

/** Each time that this number of bytes was passed to an end, the gateway asks that end whether it has read them. */
export const CIRCUIT_STEP_BYTES = 64 * 1024;

/** Smallest credit cost of a message. Waiting messages form a list, and each of its entries uses memory. */
const CIRCUIT_MESSAGE_MIN_BYTES = 64;

export function circuitCost(bytes: number): number {
  return Math.max(bytes, CIRCUIT_MESSAGE_MIN_BYTES);
}

/** Sent to both ends after both have proven their sessions. */
export const CONNECTED_TEXT = 'connected';

/**
 * Sent to an end, which returns it after reading all previous bytes. The number is random, so an end that does not read
 * cannot return it.
 */
export const READ_TEXT = /^read ([0-9a-f]{16})$/;

/** Sent to the other end, which may then send CIRCUIT_STEP_BYTES more. */
export const MORE_TEXT = 'more';

/** Format of circuit names, which the gateway generates. */
export const CIRCUIT_NAME = /^[0-9a-f]{32}$/;
