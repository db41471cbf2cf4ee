/**
 * Text that agents send on an idle socket. The runtime replies for a gateway's object that sleeps, without waking it.
 */
export const PING_TEXT = 'otela:ping';
export const PONG_TEXT = 'otela:pong';
