/** The least that a gateway of this design can be: no key, no routing, no frames, no metering. See bench/sections/floor.ts. */
import { DurableObject } from 'cloudflare:workers';

const ANSWER = new Uint8Array(300).fill(97);
const HEADERS = { 'content-type': 'application/json' };

export class Bare extends DurableObject {
  #waiting = [];

  fetch() {
    const { 0: client, 1: server } = new WebSocketPair();
    this.ctx.acceptWebSocket(server);
    return new Response(null, { status: 101, webSocket: client });
  }

  ask(body) {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.ctx.getWebSockets()[0].send(body);
    });
  }

  webSocketMessage(_socket, message) {
    for (let count = Math.round(message.byteLength / ANSWER.length); count > 0; count--)
      this.#waiting.shift()?.(ANSWER);
  }
}

export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    const object = env.BARE.getByName('bare');
    if (pathname === '/socket') return object.fetch(request);
    const body = new Uint8Array(await request.arrayBuffer());
    if (pathname === '/worker') return new Response(ANSWER, { headers: HEADERS });
    return new Response(await object.ask(body), { headers: HEADERS });
  },
};
