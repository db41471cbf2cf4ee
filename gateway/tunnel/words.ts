/** Words that the door, the objects and the runtime between them agree on. */

/** Text that agents send on an idle socket; the runtime answers it without waking the object. */
export const PING_TEXT = 'otela:ping';
export const PONG_TEXT = 'otela:pong';

/** From the door to the objects. */
export const AUDIENCE_HEADER = 'x-otela-audience';
export const GATEWAY_HEADER = 'x-otela-gateway';
