/** What the door tells the objects of a socket that it let through. */
export const AUDIENCE_HEADER = 'x-otela-audience';
export const GATEWAY_HEADER = 'x-otela-gateway';
