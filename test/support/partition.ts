/** A TCP proxy between gateways that a test can cut: packets are dropped, and no connection is refused. */
import { connect, createServer, type Socket } from 'node:net';
import { atEnd } from './processes.ts';

export interface Partition {
  url: string;
  /** Drops the data of existing and new connections. */
  cut(): void;
  /** Breaks all existing connections; new ones work. */
  heal(): void;
}

export async function partition(target: { port: number }): Promise<Partition> {
  let isCut = false;
  const sockets = new Set<Socket>();
  const server = createServer((from) => {
    sockets.add(from);
    const to = connect(target.port, '127.0.0.1');
    for (const [one, other] of [
      [from, to],
      [to, from],
    ] as const) {
      one.on('data', (piece) => {
        if (!isCut) other.write(piece);
      });
      one.on('error', () => {});
      one.on('close', () => {
        if (!isCut) other.destroy();
        sockets.delete(from);
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const hangUp = () => {
    for (const socket of sockets) socket.destroy();
  };
  atEnd(() => {
    hangUp();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`,
    cut: () => {
      isCut = true;
    },
    heal: () => {
      isCut = false;
      hangUp();
    },
  };
}
