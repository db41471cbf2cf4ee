/** Text that agents send on an idle socket. If the gateway's object sleeps, the runtime replies without waking it. */
export const PING_TEXT = 'otela:ping';
export const PONG_TEXT = 'otela:pong';
