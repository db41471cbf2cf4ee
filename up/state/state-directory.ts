/**
 * What `otela up` keeps on this machine, in a directory of mode 0700:
 *
 *     gateway/          the gateway's data
 *     gateway.json      its port, and an API key
 *     gateway.sock      exists while a process starts the gateway
 *     factory.token     with which --cold asks the gateway for waiting requests
 *     tunnel.pem        the key with which agents recognize this machine
 *     runs/ID.json      a run: its host, model, job and relay
 *     runs/ID.sock      exists while a process holds the run
 *     agents/           single-file agents, by platform
 */
import { mkdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

/** The XDG Base Directory specification: state that is kept between starts. */
export function stateDirectory(env: NodeJS.ProcessEnv = process.env): string {
  const directory = join(env.XDG_STATE_HOME || join(homedir(), '.local/state'), 'otela');
  mkdirSync(join(directory, 'runs'), { recursive: true, mode: 0o700 });
  return directory;
}
