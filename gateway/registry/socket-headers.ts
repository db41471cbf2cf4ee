/** Headers with which a route passes an agent's socket to its object. */
export const AUDIENCE_HEADER = 'x-otela-audience';
export const GATEWAY_HEADER = 'x-otela-gateway';
