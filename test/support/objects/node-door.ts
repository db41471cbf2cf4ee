/** The contract's object in a Node host, as a separate process: `node node-door.ts DIRECTORY` prints `door PORT`. */
import { mkdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { getRequestListener } from '@hono/node-server';
import { WebSocketServer } from 'ws';
import type { Env } from '../../../gateway/env.ts';
import { upgradeOf } from '../../../gateway/hosts/node/node-sockets.ts';
import { ObjectHost } from '../../../gateway/hosts/node/object-host.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { ContractObject, contractDoor } from './contract-object.ts';

const [directory = ''] = process.argv.slice(2);
mkdirSync(directory, { recursive: true });
const host: ObjectHost = new ObjectHost({
  directory,
  classes: { TUNNEL: ContractObject },
  env: () => env,
  log: (line) => console.error(line),
});
const objects = host.namespace<ContractObject>('TUNNEL');
const env = { TUNNEL: objects } as unknown as Env;
const server = createServer(
  getRequestListener((request) => contractDoor(request, objects), { overrideGlobalObjects: false }),
);
const sockets = new WebSocketServer({ noServer: true });
server.on('upgrade', (message, socket, head) => {
  neverRejects(
    contractDoor(new Request(`http://door${message.url}`), objects).then((response) => {
      const upgrade = upgradeOf(response);
      if (upgrade === undefined) socket.destroy();
      else sockets.handleUpgrade(message, socket, head, (connection) => upgrade.socket.attach(connection));
    }),
  );
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  host.start();
  console.log(`door ${typeof address === 'object' ? address?.port : ''}`);
});
