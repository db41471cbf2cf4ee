/** A circuit through a gateway: two WebSockets that it joins. Binary messages are the circuit's bytes; these texts keep them bounded. */

/** Bytes that an end may send beyond those that it was told of. */
export const CIRCUIT_WINDOW_BYTES = 512 * 1024;

/** After so many bytes to one end the gateway asks it whether it has read them. */
export const CIRCUIT_STEP_BYTES = 64 * 1024;

/** Both ends have proven their sessions. */
export const CONNECTED_TEXT = 'connected';

/** To an end, which says it again once it has read all that came before. It cannot be guessed: to say it is to have read. */
export const READ_TEXT = /^read ([0-9a-f]{16})$/;

/** To the other end: CIRCUIT_STEP_BYTES more. */
export const MORE_TEXT = 'more';

/** Names of circuits, which the gateway makes. */
export const CIRCUIT_NAME = /^[0-9a-f]{32}$/;
