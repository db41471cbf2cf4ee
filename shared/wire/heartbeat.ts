/** Text that agents send on an idle socket; where a gateway's object sleeps, the runtime answers it without waking it. */
export const PING_TEXT = 'otela:ping';
export const PONG_TEXT = 'otela:pong';
