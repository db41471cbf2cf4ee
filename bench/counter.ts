/**
 * A TCP splice that counts bytes: placed between agent and gateway, it sees each byte of the tunnel, WebSocket framing
 * included.
 */
import { connect, createServer, type Server, type Socket } from 'node:net';

interface Count {
  /** Gateway → agent. */
  out: number;
  /** Agent → gateway. */
  back: number;
}

export interface Counter {
  url: string;
  /** Returns the bytes since the last call. */
  take(): Count;
  close(): void;
}

export async function startCounter(port: number): Promise<Counter> {
  let count: Count = { out: 0, back: 0 };
  const sockets = new Set<Socket>();
  const server: Server = createServer((agent) => {
    const gateway = connect({ host: '127.0.0.1', port, noDelay: true });
    agent.setNoDelay(true);
    for (const [socket, other, way] of [
      [agent, gateway, 'back'],
      [gateway, agent, 'out'],
    ] as const) {
      sockets.add(socket);
      socket.on('data', (piece) => {
        count[way] += piece.length;
      });
      socket.pipe(other);
      socket.on('error', () => other.destroy());
      socket.on('close', () => {
        sockets.delete(socket);
        other.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  return {
    url: `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`,
    take: () => {
      const taken = count;
      count = { out: 0, back: 0 };
      return taken;
    },
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
