/**
 * The parts of `serve` around a Worker of a test's choosing, as a process of its own, so that its memory can be measured:
 * `node door.ts WORKER.js DIRECTORY [CONNECTIONS_MAX]` prints its port and workerd's process id.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { workerdConfig } from '../../../gateway/standalone/config.ts';
import { PublicSocket } from '../../../gateway/standalone/node/public-socket.ts';
import { loadWorkerBundle } from '../../../gateway/standalone/node/worker-bundle.ts';
import { Workerd } from '../../../gateway/standalone/node/workerd.ts';

const [worker = '', directory = '', connectionsMax = '1000'] = process.argv.slice(2);
const [objectsDir, d1Dir] = [join(directory, 'objects'), join(directory, 'd1')];
await Promise.all([objectsDir, d1Dir].map((made) => mkdir(made, { recursive: true })));
const path = join(directory, 'workerd.sock');
const config = join(directory, 'workerd.capnp');
const bundle = { ...(await loadWorkerBundle()), gateway: await readFile(worker, 'utf8') };
const text = workerdConfig({ ...bundle, address: `unix:${path}`, objectsDir, d1Dir, fromEnvironment: [] });
await writeFile(config, text);

const publicSocket = new PublicSocket({ path, connectionsMax: Number(connectionsMax) });
const port = await publicSocket.listen(0, '127.0.0.1');
const pidFile = join(directory, 'workerd.pid');
const workerd = new Workerd({ config, socket: path, pidFile, env: process.env, log: (line) => console.error(line) });
await workerd.start();
console.log(`door ${port} ${workerd.pid}`);
process.on('SIGTERM', () => {
  void publicSocket
    .close(5_000)
    .then(() => workerd.stop())
    .then(() => process.exit());
});
