/** The address of this machine in the network that another machine is in. */
import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';

/**
 * Returns the source address of packets to `host`, by the system's routes. A UDP socket is connected, which sends
 * nothing.
 *
 * @throws Error if the name is unknown or there is no route
 */
export async function addressToward(host: string): Promise<string> {
  const { address, family } = await lookup(host);
  const socket = createSocket(family === 6 ? 'udp6' : 'udp4');
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once('error', reject);
      socket.connect(9, address, resolve); // port 9 is "discard"; any port has the same route
    });
    return socket.address().address;
  } finally {
    socket.close();
  }
}
