/** What the socket's tests need to see from inside: who left, how much was pulled, what was never read. */
const begun = [];
const left = [];
let pulled = 0;

export class TunnelObject {}
export class RegistryObject {}
export class LimitsObject {}
export class UsageObject {}

function body(id, chunkBytes, chunks) {
  return new ReadableStream({
    type: 'bytes',
    pull(controller) {
      controller.enqueue(new Uint8Array(chunkBytes));
      pulled += chunkBytes;
      if (--chunks === 0) controller.close();
    },
    cancel: () => left.push(id),
  });
}

const ROUTES = {
  '/begun': () => Response.json(begun),
  '/left': () => Response.json(left),
  '/pulled': () => Response.json(pulled),
  '/echo': async (request) => new Response(await request.arrayBuffer()),
  '/download': (_request, id, query) => new Response(body(id, 65_536, Number(query.get('chunks')))),
  /** Never answers. */
  '/prefill': (request, id) => {
    begun.push(id);
    request.signal.addEventListener('abort', () => left.push(id));
    return new Promise((resolve) => setTimeout(resolve, 60_000, new Response('late')));
  },
  /** Sends one chunk, then nothing more. */
  '/stall': (_request, id) =>
    new Response(
      new ReadableStream({
        start: (controller) => controller.enqueue(new TextEncoder().encode('data: 1\n\n')),
        // Without something to wait for, workerd ends a Worker that has hung.
        pull: () => new Promise((resolve) => setTimeout(resolve, 60_000)),
        cancel: () => left.push(id),
      }),
      { headers: { 'content-type': 'text/event-stream' } },
    ),
  /** A second and a half of tokens. */
  '/tokens': () => {
    const { readable, writable } = new TransformStream();
    const writer = writable.getWriter();
    const send = async () => {
      for (let i = 0; i < 15; i += 1) {
        await new Promise((resolve) => setTimeout(resolve, 100));
        await writer.write(new TextEncoder().encode(`data: ${i}\n\n`));
      }
      await writer.close();
    };
    void send();
    return new Response(readable, { headers: { 'content-type': 'text/event-stream' } });
  },
  /** Takes a body and never looks at it. */
  '/unread': () => new Promise((resolve) => setTimeout(resolve, 60_000, new Response('late'))),
  '/websocket': () => {
    const { 0: client, 1: server } = new WebSocketPair();
    server.accept();
    server.binaryType = 'arraybuffer';
    server.addEventListener('message', ({ data }) => server.send(data));
    server.addEventListener('close', ({ code }) => left.push(`closed ${code}`));
    return new Response(null, { status: 101, webSocket: client });
  },
};

export default {
  fetch(request) {
    const { pathname, searchParams } = new URL(request.url);
    return ROUTES[pathname]?.(request, searchParams.get('id'), searchParams) ?? new Response('ok');
  },
};
