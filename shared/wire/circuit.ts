/** A circuit through a gateway: two WebSockets that it joins. Binary messages are the circuit's bytes; these texts keep them bounded. */

/** Bytes that an end may send beyond those that the gateway reported as read. */
export const CIRCUIT_WINDOW_BYTES = 512 * 1024;

/** After so many bytes to one end the gateway asks it whether it has read them. */
export const CIRCUIT_STEP_BYTES = 64 * 1024;

/** Both ends have proven their sessions. */
export const CONNECTED_TEXT = 'connected';

/** Sent to an end, which repeats it once it has read all bytes before it. The number cannot be guessed without reading it. */
export const READ_TEXT = /^read ([0-9a-f]{16})$/;

/** Sent to the other end: it may send CIRCUIT_STEP_BYTES more. */
export const MORE_TEXT = 'more';

/** Names of circuits, which the gateway makes. */
export const CIRCUIT_NAME = /^[0-9a-f]{32}$/;
